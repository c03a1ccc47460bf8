import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fc from 'fast-check';
import { redactSecrets, WITHHELD } from '#src/csi/redact-secrets.ts';
import { STRIPPED } from '#src/runtime/loggable.ts';

/** A fixed seed, so that every run has the same inputs; a failure prints the smallest input. */
const SEED = 20_261_122;

/** Has a character for each reason to encode one. */
const AWKWARD = 'pä"s \\w\'o+r/d&=%\n\u0007\u{1f511}<~é';
/** AWKWARD as Go's standard library writes it (go1.24). */
const BY_GO: Readonly<Record<string, string>> = {
  'json.Marshal': '"pä\\"s \\\\w\'o+r/d\\u0026=%\\n\\u0007\u{1f511}\\u003c~é"',
  'json.Marshal of json.Marshal':
    '"\\"pä\\\\\\"s \\\\\\\\w\'o+r/d\\\\u0026=%\\\\n\\\\u0007\u{1f511}\\\\u003c~é\\""',
  'url.QueryEscape': 'p%C3%A4%22s+%5Cw%27o%2Br%2Fd%26%3D%25%0A%07%F0%9F%94%91%3C~%C3%A9',
  'url.PathEscape': 'p%C3%A4%22s%20%5Cw%27o+r%2Fd&=%25%0A%07%F0%9F%94%91%3C~%C3%A9',
  'base64.RawURLEncoding of admin:…': 'YWRtaW46cMOkInMgXHcnbytyL2QmPSUKB_CflJE8fsOp',
  'base64.StdEncoding of a:…': 'YTpww6QicyBcdydvK3IvZCY9JQoH8J+UkTx+w6k=',
  'hex.EncodeToString': '70c3a42273205c77276f2b722f64263d250a07f09f94913c7ec3a9',
  '%X': '70C3A42273205C77276F2B722F64263D250A07F09F94913C7EC3A9',
};

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const toHex = (text: string): string => Buffer.from(text).toString('hex');

type Encoding = (text: string) => string;
const ENCODINGS: Readonly<Record<string, Encoding>> = {
  plain: (text) => text,
  trimmed: (text) => text.trim(),
  JSON: (text) => JSON.stringify(text),
  'JSON in JSON': (text) => JSON.stringify(JSON.stringify(text)),
  'JSON without quotes': (text) => JSON.stringify(text).slice(1, -1),
  encodeURIComponent,
  'lower-case percent-encoding': (text) =>
    encodeURIComponent(text).replaceAll(/%../g, (code) => code.toLowerCase()),
  form: (text) => new URLSearchParams([['k', text]]).toString(),
  base64,
  'URL-safe base64 without padding': (text) => Buffer.from(text).toString('base64url'),
  'Basic auth 1': (text) => base64(`u:${text}`),
  'Basic auth 2': (text) => base64(`us:${text}`),
  'Basic auth 3': (text) => base64(`use:${text}:more`),
  hex: toHex,
  'upper-case hex': (text) => toHex(text).toUpperCase(),
  'upper case': (text) => text.replaceAll(/[a-z]/g, (letter) => letter.toUpperCase()),
};

describe('redactSecrets', () => {
  it('replaces values, the longest first, and leaves other words', () =>
    assert.equal(
      redactSecrets('login bob/hunter2hunter2 failed (hunter2)', ['hunter2', 'hunter2hunter2']),
      'login bob/***stripped*** failed (***stripped***)',
    ));

  it('replaces values that overlap as a whole', () =>
    assert.equal(redactSecrets('x abcdef y', ['abcd', 'cdef']), `x ${STRIPPED} y`));

  for (const [name, encoded] of Object.entries(BY_GO))
    it(`finds a value that Go has encoded by ${name}`, () => {
      const text = redactSecrets(`rpc failed (${encoded}): try again`, [AWKWARD]);
      assert.match(text, /^rpc failed \(\S*\*\*\*stripped\*\*\*\S*\): try again$/);
      assert.doesNotMatch(text, /[äé\u{1f511}]|C3%|c3 ?a4|w'o|\\u00|Mg|ICBc/iu);
    });

  for (const [name, encode] of Object.entries(ENCODINGS))
    it(`leaves no form of any secret in any text: ${name}`, () => {
      const secret = fc
        .string({ minLength: 4, maxLength: 60, unit: 'binary' })
        .filter((text) => text.trim().length >= 4 && !/\p{Cs}/u.test(text));
      const around = fc.string({ maxLength: 30, unit: 'binary' });
      fc.assert(
        fc.property(secret, around, around, (value, before, after) => {
          const form = encode(value);
          const struck = redactSecrets(`${before} ${form} ${after}`, [value]);
          // What is found in the texts around or in the replacement says nothing about the value.
          fc.pre(!`${before} ${STRIPPED} ${after}`.includes(form));
          assert.ok(!struck.includes(form), struck);
          assert.ok(struck.includes(STRIPPED), struck);
        }),
        { seed: SEED, numRuns: 200 },
      );
    });

  it('finds each line of a key, also where lines are joined or escaped', () => {
    const lines = ['-----BEGIN KEY-----', 'MIIBVwIBADANBgkqhkiG', 'abcd', '-----END KEY-----'];
    const key = `${lines.join('\r\n')}\n`;
    for (const line of lines.slice(1, 3))
      assert.equal(redactSecrets(`bad line "${line}"`, [key]), `bad line "${STRIPPED}"`);
    const escaped = redactSecrets(`bad key ${JSON.stringify(lines.join('\n'))}`, [key]);
    assert.doesNotMatch(escaped, /MII|abcd/);
  });

  it('returns a text without secrets unchanged', () => {
    const text = 'no room in pool "a%20b" \\ \ud800 größe\n';
    assert.equal(redactSecrets(text, ['hunter2', '']), text);
  });

  it('withholds a text where there are too many lines to search for', () => {
    const lines = [...Array(600).keys()].map((line) => `${line}-line`).join('\n');
    assert.equal(redactSecrets('the key is bad', [lines]), WITHHELD.unsearchable);
  });

  it('takes less than a second of CPU for the longest text and secret', () => {
    const began = process.cpuUsage();
    for (const secret of ['a'.repeat(1024 * 1024), 'a'.repeat(1000)])
      redactSecrets('a'.repeat(64 * 1024), [secret]);
    const usedMs = process.cpuUsage(began).user / 1000;
    assert.ok(usedMs < 1000, `${usedMs} ms`);
  });
});
