import type { HeaderValues } from '#src/webhooks/decode.ts';
import {
  ARGO,
  BATCH_HEADERS,
  BINARY,
  CLAIM,
  CLAIM_REFERENCE,
  JSON_HEADERS,
  REVIEW,
  STRUCTURED,
  STRUCTURED_HEADERS,
  VOLUME,
  WATCH_EVENT,
} from './fixtures.ts';

type Random = () => number;

const HEADERS: readonly HeaderValues[] = [
  {},
  JSON_HEADERS,
  JSON_HEADERS,
  STRUCTURED_HEADERS,
  BATCH_HEADERS,
  BINARY,
];
const MISSED = { ...ARGO, type: 'DELETE', body: { Key: 'team-a/data-web-0', Obj: CLAIM } };
const WHOLE = {
  context: { id: 'a', source: 'b', type: 'resource' },
  data: Buffer.from(JSON.stringify(ARGO)).toString('base64'),
};
const BODIES: readonly unknown[] = [
  WATCH_EVENT,
  { type: 'DELETED', object: VOLUME },
  ARGO,
  MISSED,
  WHOLE,
  STRUCTURED,
  [STRUCTURED, { ...STRUCTURED, data: 5 }],
  CLAIM,
  CLAIM_REFERENCE,
  REVIEW,
];
const ODD: readonly unknown[] = [
  null,
  '',
  0,
  -1e308,
  true,
  [],
  {},
  [[]],
  '../x',
  '{"type":"ADDED"}',
  'null',
  '\u0000',
  '\ud800',
  'PersistentVolume',
  'Pod',
  'v1',
  'x'.repeat(300),
  '__proto__',
  { Key: 'a/b' },
  ['PersistentVolumeClaim'],
];

/** Headers of one of the formats, some of them changed. */
export function fuzzHeaders(random: Random): HeaderValues {
  const headers = pick(HEADERS, random);
  if (random() < 0.7) return headers;
  const names = [...Object.keys(headers), 'content-type', 'ce-id', 'ce-x', 'content-encoding'];
  const values = [[], ['%'], ['%C0%A0'], ['"'], ['a', 'b'], ['\xff'], ['gzip'], ['application/']];
  return { ...headers, [pick(names, random)]: pick(values, random) };
}

/** A body of one of the shapes: as it is, with values replaced, or with bytes changed. */
export function fuzzBody(random: Random): Buffer {
  const shape = pick(BODIES, random);
  const kind = random();
  if (kind < 0.1) return Buffer.from(JSON.stringify(shape));
  if (kind < 0.7) return Buffer.from(JSON.stringify(mutate(shape, random)));
  const bytes = Buffer.from(JSON.stringify(shape));
  for (let n = 0; n < 1 + random() * 4; n += 1)
    bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
  return random() < 0.5 ? bytes : bytes.subarray(0, Math.floor(random() * bytes.length));
}

/** The value with one part of it replaced, removed or put into a string. */
function mutate(value: unknown, random: Random): unknown {
  if (typeof value !== 'object' || value === null || random() < 0.15)
    return random() < 0.1 ? JSON.stringify(value) : pick(ODD, random);
  if (Array.isArray(value)) {
    const at = Math.floor(random() * value.length);
    return value.map((item: unknown, index) => (index === at ? mutate(item, random) : item));
  }
  const entries = Object.entries(value);
  const at = Math.floor(random() * entries.length);
  const changed = entries.flatMap(([key, item], index): [string, unknown][] => {
    if (index !== at) return [[key, item]];
    return random() < 0.2 ? [] : [[key, mutate(item, random)]];
  });
  return Object.fromEntries(changed);
}

function pick<T>(items: readonly T[], random: Random): T {
  const item = items[Math.floor(random() * items.length)];
  if (item === undefined) throw new Error('there is nothing to pick');
  return item;
}
