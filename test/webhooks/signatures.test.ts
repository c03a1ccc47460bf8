import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, it } from 'node:test';
import { verifySignature } from '#src/webhooks/authenticator.ts';
import { parseSigningKeys } from '#src/webhooks/sender-secrets.ts';

const KEY = Buffer.from('a key that has thirty-two bytes!');
const OTHER = Buffer.from('another key of thirty-two bytes!');
const KEYS = parseSigningKeys(`whsec_${KEY.toString('base64')} shop\n`);
const NOW_MS = 1_700_000_000_500;
const BODY = Buffer.from('{"a":1}');

function sign(key: Buffer, id: string, timestamp: string, body = BODY): string {
  const signed = `${id}.${timestamp}.`;
  return `v1,${createHmac('sha256', key).update(signed).update(body).digest('base64')}`;
}

function headers(signature: string, timestamp = '1700000000', id = 'msg_1') {
  return {
    'webhook-id': [id],
    'webhook-timestamp': [timestamp],
    'webhook-signature': [signature],
  };
}

/** The name of the signer; otherwise why there is none. */
function verify(given: Readonly<Record<string, string[] | undefined>>, keys = KEYS, body = BODY) {
  const signer = verifySignature(given, body, keys, NOW_MS);
  return typeof signer === 'string' ? signer : signer.name;
}

const GOOD = sign(KEY, 'msg_1', '1700000000');

describe('a signed request', () => {
  it('matches the published example of Standard Webhooks', () => {
    const keys = parseSigningKeys('whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw example');
    const body = Buffer.from('{"test": 2432232314}');
    const signature = 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=';
    const given = headers(signature, '1614265330', 'msg_p5jXN8AQM9LWM0D4loKWxJek');
    assert.deepEqual(verifySignature(given, body, keys, 1_614_265_330_000), keys[0]?.sender);
  });

  it('is good if any of its signatures is', () =>
    assert.equal(verify(headers(`v1a,xxxx v2,yyyy v1,AAAA ${GOOD}`)), 'shop'));

  it('is bad with another key, id, time or body', () => {
    assert.match(verify(headers(sign(OTHER, 'msg_1', '1700000000'))), /no key/);
    assert.match(verify(headers(GOOD, '1700000000', 'msg_2')), /no key/);
    assert.match(verify(headers(GOOD, '1700000001')), /no key/);
    assert.match(verify(headers(GOOD), KEYS, Buffer.from('{"a":2}')), /no key/);
  });

  it('is good 300 s before and after its time, and not beyond', () => {
    const at = (timestamp: string) => verify(headers(sign(KEY, 'msg_1', timestamp), timestamp));
    assert.equal(at('1699999700'), 'shop');
    assert.equal(at('1700000300'), 'shop');
    assert.match(at('1699999699'), /300 s/);
    assert.match(at('1700000301'), /300 s/);
  });

  it('has each header once, and not empty', () => {
    for (const name of ['webhook-id', 'webhook-timestamp', 'webhook-signature'])
      for (const values of [undefined, [''], ['a', 'b']])
        assert.match(verify({ ...headers(GOOD), [name]: values }), new RegExp(name));
  });

  it('is checked by its first sixteen signatures only', () => {
    const many = Array.from({ length: 16 }, () => 'v1,AAAA').join(' ');
    assert.match(verify(headers(`${many} ${GOOD}`)), /no key/);
  });
});

describe('a file of signing keys', () => {
  it('may have comments, empty lines, and keys without a name', () => {
    const [key] = parseSigningKeys(`# keys\n\n  ${KEY.toString('base64')}\n`);
    assert.match(key?.sender.name ?? '', /^[0-9a-f]{8}$/);
  });

  for (const [what, text, error] of [
    ['a key of 23 bytes', `whsec_${Buffer.alloc(23).toString('base64')}`, /line 1: .*23 bytes/],
    ['a key of 65 bytes', `whsec_${Buffer.alloc(65).toString('base64')}`, /65 bytes/],
    ['an empty key', 'whsec_', /0 bytes/],
    ['broken base64', `# a\nwhsec_${'*'.repeat(32)}`, /line 2: .*base64/],
    ['an ed25519 key', 'whsk_AAAA', /ed25519/],
  ] as const)
    it(`is refused with ${what}`, () => assert.throws(() => parseSigningKeys(text), error));

  it('never shows a key in an error', () => {
    for (const text of ['whsec_s3cret s3cret s3cret', 's3cret', 'whpk_s3cret', 'x s3cret!'])
      assert.throws(
        () => parseSigningKeys(text),
        (error: Error) => !error.message.includes('s3cret'),
      );
  });
});
