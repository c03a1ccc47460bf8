import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { CloudEvent, HTTP } from 'cloudevents';
import { readEvents } from '#src/webhooks/read-events.ts';
import type { HeaderValues } from '#src/webhooks/decode.ts';
import { orProblem, RequestProblem } from '#src/webhooks/problem.ts';
import {
  ARGO,
  BATCH_HEADERS,
  BINARY,
  CLAIM,
  CLAIM_NOTICE,
  CLAIM_REFERENCE,
  JSON_HEADERS,
  STRUCTURED,
  STRUCTURED_HEADERS,
  VOLUME,
  VOLUME_NOTICE,
  WATCH_EVENT,
} from './fixtures.ts';

/** The notice, the reason to ignore it, or status and field of the problem, of the one event of a
 * body. */
function readOne(headers: HeaderValues, body: unknown): unknown {
  const bytes = Buffer.isBuffer(body) ? body : Buffer.from(textOf(body));
  const read = orProblem(() => readEvents(headers, bytes));
  if (read instanceof RequestProblem) return `${read.status} ${read.field ?? ''}`;
  const [event] = read;
  assert.ok(event !== undefined && !(event instanceof RequestProblem));
  return event.verdict;
}

function textOf(body: unknown): string {
  return typeof body === 'string' ? body : JSON.stringify(body);
}

type Cases = readonly (readonly [title: string, headers: HeaderValues, body: unknown, unknown])[];

function testEach(cases: Cases): void {
  for (const [title, headers, body, expected] of cases)
    it(title, () => assert.deepEqual(readOne(headers, body), expected));
}

const volumeReference = { kind: 'PersistentVolume', name: 'pvc-6d1f', apiVersion: 'v1' };
const volumeEvent = {
  ...STRUCTURED,
  data: volumeReference,
  kind: 'PersistentVolume',
  name: 'pvc-6d1f',
  namespace: '',
};
const withoutExtensions = {
  specversion: '1.0',
  id: 'id-1',
  source: 's',
  type: 'dev.knative.apiserver.resource.add',
};

describe('CloudEvents in structured mode', () => {
  const read = (title: string, change: object, expected: unknown) =>
    [title, STRUCTURED_HEADERS, { ...STRUCTURED, ...change }, expected] as const;
  testEach([
    read('name a claim by a reference', {}, CLAIM_NOTICE),
    read(
      'name a claim by the whole object',
      { type: typeOf('resource.add'), data: CLAIM },
      CLAIM_NOTICE,
    ),
    read('name a volume, whose namespace is empty', volumeEvent, VOLUME_NOTICE),
    read('are notices when an object is deleted', { type: typeOf('ref.delete') }, CLAIM_NOTICE),
    read(
      'may have extensions that nobody knows',
      { knativearrivaltime: 'x', other: 5 },
      CLAIM_NOTICE,
    ),
    read('may have null for absent attributes', { subject: null, data_base64: null }, CLAIM_NOTICE),
    read('of other types are ignored', { type: 'com.example.order' }, 'other-type'),
    read(
      'about another kind are ignored',
      { kind: 'Pod', data: { ...CLAIM_REFERENCE, kind: 'Pod' } },
      'other-kind',
    ),
    read(
      'about the kind of another group are ignored',
      { apiversion: 'x.io/v1', data: { ...CLAIM_REFERENCE, apiVersion: 'x.io/v1' } },
      'other-group',
    ),
    read('need an id', { id: undefined }, '400 id'),
    read('need an id that is not empty', { id: '' }, '400 id'),
    read('need an id that is a string', { id: 5 }, '400 id'),
    read('need a source', { source: null }, '400 source'),
    read('need a type', { type: undefined }, '400 type'),
    read('need version 1.0', { specversion: '0.3' }, '400 specversion'),
    read('need version 1.0 as a string', { specversion: 1 }, '400 specversion'),
    read('have no data twice', { data_base64: 'e30=' }, '400 data_base64'),
    read('have data that is an object', { data: 'text' }, '400 data'),
    read('keep JSON in a string a string', { data: JSON.stringify(CLAIM_REFERENCE) }, '400 data'),
    read('have data that is JSON', { datacontenttype: 'text/xml' }, '400 datacontenttype'),
    read('are refused if the extension names another object', { name: 'other' }, '400 name'),
    read('are refused if the extension names another kind', { kind: 'Secret' }, '400 kind'),
    read(
      'are refused if the extension names another namespace',
      { namespace: 'x' },
      '400 namespace',
    ),
    read('are refused if the extension has another group', { apiversion: 'v2' }, '400 apiversion'),
    read('need a kind', { data: { ...CLAIM_REFERENCE, kind: undefined } }, '400 data.kind'),
    read(
      'need an apiVersion',
      { data: { ...CLAIM_REFERENCE, apiVersion: 1 } },
      '400 data.apiVersion',
    ),
    read('need a name', { data: { ...CLAIM_REFERENCE, name: '' } }, '400 data.name'),
    read(
      'need a namespace for a claim',
      { namespace: '', data: { ...CLAIM_REFERENCE, namespace: '' } },
      '400 data.namespace',
    ),
    read(
      'need a legal name',
      { name: '../x', data: { ...CLAIM_REFERENCE, name: '../x' } },
      '400 data.name',
    ),
    read(
      'need a legal namespace',
      { namespace: 'a.b', data: { ...CLAIM_REFERENCE, namespace: 'a.b' } },
      '400 data.namespace',
    ),
    read(
      'may give a volume a namespace, which is not looked at',
      { ...volumeEvent, data: { ...volumeReference, namespace: 'x' } },
      VOLUME_NOTICE,
    ),
    [
      'need not have extensions',
      STRUCTURED_HEADERS,
      { ...withoutExtensions, data: CLAIM },
      CLAIM_NOTICE,
    ],
    [
      'may have data in base64',
      STRUCTURED_HEADERS,
      { ...withoutExtensions, data_base64: Buffer.from(JSON.stringify(VOLUME)).toString('base64') },
      VOLUME_NOTICE,
    ],
    [
      'need good base64',
      STRUCTURED_HEADERS,
      { ...withoutExtensions, data_base64: '{"a":1}' },
      '400 data_base64',
    ],
    ['need data', STRUCTURED_HEADERS, withoutExtensions, '400 data'],
    [
      'without data name the object by extensions',
      STRUCTURED_HEADERS,
      { ...STRUCTURED, data: undefined },
      CLAIM_NOTICE,
    ],
    [
      'need metadata in a whole object',
      STRUCTURED_HEADERS,
      { ...withoutExtensions, data: CLAIM_REFERENCE },
      '400 data.metadata',
    ],
    ['must be objects', STRUCTURED_HEADERS, [STRUCTURED], '400 body'],
    [
      'are recognised in any case of the media type',
      { 'content-type': ['Application/CloudEvents+JSON;Charset="utf-8"'] },
      STRUCTURED,
      CLAIM_NOTICE,
    ],
    [
      'are not read in other formats',
      { 'content-type': ['application/cloudevents+avro'] },
      STRUCTURED,
      '415 Content-Type',
    ],
  ]);
});

describe('CloudEvents in binary mode', () => {
  const read = (title: string, change: HeaderValues, expected: unknown, body: unknown = CLAIM) =>
    [title, { ...BINARY, ...change }, body, expected] as const;
  testEach([
    read('name a claim by the whole object', {}, CLAIM_NOTICE),
    read(
      'name a claim by a reference',
      { 'ce-type': [typeOf('ref.add')] },
      CLAIM_NOTICE,
      CLAIM_REFERENCE,
    ),
    read(
      'name a volume, whose namespace header is empty',
      { 'ce-kind': ['PersistentVolume'], 'ce-name': ['pvc-6d1f'], 'ce-namespace': [''] },
      VOLUME_NOTICE,
      VOLUME,
    ),
    read('need no Content-Type', { 'content-type': undefined }, CLAIM_NOTICE),
    read('may have a type of JSON', { 'content-type': ['application/x+json'] }, CLAIM_NOTICE),
    read('are decoded once from percent-encoding', { 'ce-name': ['data%2dweb%2D0'] }, CLAIM_NOTICE),
    read('are decoded only once', { 'ce-name': ['data%252dweb-0'] }, '400 ce-name'),
    read('may be quoted', { 'ce-name': ['"data-web\\-0"'] }, CLAIM_NOTICE),
    read(
      'may have UTF-8 as it is',
      { 'ce-subject': [Buffer.from('ü').toString('latin1')] },
      CLAIM_NOTICE,
    ),
    read('need valid UTF-8', { 'ce-subject': ['%C0%A0'] }, '400 ce-subject'),
    read('need valid UTF-8 as it is too', { 'ce-subject': ['\xc0\xa0'] }, '400 ce-subject'),
    read('have no bare %', { 'ce-subject': ['100%'] }, '400 ce-subject'),
    read('have each attribute once', { 'ce-id': ['a', 'b'] }, '400 ce-id'),
    read('have no ce-datacontenttype', { 'ce-datacontenttype': ['x/y'] }, '400 ce-datacontenttype'),
    read('need an id that is not empty', { 'ce-id': [''] }, '400 ce-id'),
    read('need version 1.0', { 'ce-specversion': ['2.0'] }, '400 ce-specversion'),
    read('need data', {}, '400 body', ''),
    read('need data that is JSON', { 'content-type': ['text/plain'] }, '415 Content-Type'),
    read(
      'of other types are ignored whatever they bring',
      { 'ce-type': ['x'], 'content-type': ['text/xml'] },
      'other-type',
      '<x/>',
    ),
    read('lack an attribute', { 'ce-specversion': undefined }, '400 ce-specversion'),
    read(
      'without all attributes may be a watch event',
      { 'ce-id': undefined },
      CLAIM_NOTICE,
      WATCH_EVENT,
    ),
  ]);
});

describe('CloudEvents of the SDK for JavaScript', () => {
  const event = new CloudEvent({
    id: 'id-4',
    source: 'https://10.0.0.1:443',
    type: typeOf('ref.update'),
    data: CLAIM_REFERENCE,
    name: 'data-web-0',
    namespace: 'team-a',
  });
  for (const mode of ['structured', 'binary'] as const)
    it(`are read in ${mode} mode`, () => {
      const { headers, body } = HTTP[mode](event);
      const values = Object.entries(headers).map(([name, value]) => [
        name.toLowerCase(),
        [String(value)],
      ]);
      assert.deepEqual(readOne(Object.fromEntries(values) as HeaderValues, body), CLAIM_NOTICE);
    });
});

describe('batches of CloudEvents', () => {
  it('are judged one by one', () => {
    const members = [STRUCTURED, { ...volumeEvent, id: 'id-3' }, 5, { ...STRUCTURED, name: 'x' }];
    const events = readEvents(BATCH_HEADERS, Buffer.from(JSON.stringify(members)));
    assert.deepEqual(
      events.map((event) => (event instanceof RequestProblem ? event.field : event.verdict)),
      [CLAIM_NOTICE, VOLUME_NOTICE, '[2]', '[3].name'],
    );
  });

  it('may be empty', () => assert.deepEqual(readEvents(BATCH_HEADERS, Buffer.from('[]')), []));

  testEach([
    ['must be arrays', BATCH_HEADERS, STRUCTURED, '400 body'],
    ['have a thousand events at most', BATCH_HEADERS, Array(1_001).fill(STRUCTURED), '413 body'],
    [
      'are not read in other formats',
      { 'content-type': ['application/cloudevents-batch+xml'] },
      [],
      '415 Content-Type',
    ],
  ]);
});

describe('events of Argo Events', () => {
  const asText = Object.fromEntries(
    Object.entries(ARGO).map(([key, value]) => [key, value === null ? 'null' : textOf(value)]),
  );
  const context = { id: 'x', source: 'argo', specversion: '1.0', type: 'resource' };
  const data = Buffer.from(JSON.stringify(ARGO)).toString('base64');
  const missed = { Key: 'team-a/data-web-0', Obj: CLAIM };
  const read = (title: string, change: object, expected: unknown) =>
    [title, {}, { ...ARGO, ...change }, expected] as const;
  testEach([
    read('name a claim, without a Content-Type', {}, CLAIM_NOTICE),
    read('name a volume', { body: VOLUME, resource: 'persistentvolumes' }, VOLUME_NOTICE),
    ['may have all their parts as strings', JSON_HEADERS, asText, CLAIM_NOTICE],
    ['may be whole, with data in base64', JSON_HEADERS, { context, data }, CLAIM_NOTICE],
    [
      'may be whole, as a string',
      JSON_HEADERS,
      JSON.stringify(JSON.stringify({ context, data })),
      CLAIM_NOTICE,
    ],
    [
      'may be under a name of the user',
      JSON_HEADERS,
      { event: JSON.stringify({ context, data }) },
      CLAIM_NOTICE,
    ],
    ['may have only the object', JSON_HEADERS, { body: CLAIM }, CLAIM_NOTICE],
    read('about a missed deletion are ignored', { type: 'DELETE', body: missed }, 'no-object'),
    read('are it as a string too', { type: 'DELETE', body: textOf(missed) }, 'no-object'),
    read('of other types are ignored', { type: 'SYNC' }, 'other-type'),
    read(
      'about another kind are ignored',
      { body: { ...CLAIM, kind: 'Pod' }, resource: 'pods' },
      'other-kind',
    ),
    read('need a body', { body: undefined }, '400 body'),
    read('need a body that is an object', { body: 'null' }, '400 body'),
    read('need a string that holds JSON', { body: '{"a"' }, '400 body'),
    read('need a type that is a string', { type: 5 }, '400 type'),
    [
      'of other event sources are ignored',
      JSON_HEADERS,
      { context: { ...context, type: 's3' }, data },
      'other-type',
    ],
    ['need good base64', JSON_HEADERS, { context, data: '%' }, '400 data'],
    ['without a payload are empty', {}, '', '400 body'],
  ]);
});

describe('plain watch events', () => {
  const read = (title: string, event: unknown, expected: unknown) =>
    [title, JSON_HEADERS, event, expected] as const;
  testEach([
    read('name a claim', WATCH_EVENT, CLAIM_NOTICE),
    read('name a volume', { type: 'DELETED', object: VOLUME }, VOLUME_NOTICE),
    read('ignore bookmarks', { type: 'BOOKMARK', object: { kind: 'Pod' } }, 'no-object'),
    read('ignore errors', { type: 'ERROR', object: { kind: 'Status', code: 410 } }, 'no-object'),
    read('ignore other types', { type: 'CHANGED', object: CLAIM }, 'other-type'),
    read('need an object', { type: 'ADDED' }, '400 object'),
    read('need a type', { object: CLAIM }, '400 type'),
    read(
      'need a name',
      { type: 'ADDED', object: { ...CLAIM, metadata: {} } },
      '400 object.metadata.name',
    ),
    read(
      'need metadata',
      { type: 'ADDED', object: { ...CLAIM, metadata: null } },
      '400 object.metadata',
    ),
    read(
      'come one in a request',
      `${JSON.stringify(WATCH_EVENT)}\n${JSON.stringify(WATCH_EVENT)}`,
      '400 body',
    ),
  ]);
});

describe('bodies that are no event', () => {
  const read = (
    title: string,
    body: unknown,
    expected: string,
    headers: HeaderValues = JSON_HEADERS,
  ) => [title, headers, body, expected] as const;
  testEach([
    read('are refused if empty', '', '400 body'),
    read('are refused if they are no UTF-8', Buffer.from([0x22, 0xff, 0x22]), '400 body'),
    read('are refused if they are no JSON', '{"type":', '400 body'),
    read('are refused if they are a scalar', '5', '400 body'),
    read('are refused if they are a text', '"text"', '400 body'),
    read('are refused if they are null', 'null', '400 body'),
    read('are refused if they are a list', '[]', '400 body'),
    read('are refused if they are deep', '['.repeat(1e6) + ']'.repeat(1e6), '400 body'),
    read('are refused if they are a plain object', CLAIM, '400 body'),
    read('are refused as a CloudEvent under another type', STRUCTURED, '400 Content-Type'),
    read('are refused with another media type', WATCH_EVENT, '415 Content-Type', {
      'content-type': ['text/plain'],
    }),
    read('are refused with an odd media type', WATCH_EVENT, '415 Content-Type', {
      'content-type': ['json'],
    }),
    read('are refused with two media types', WATCH_EVENT, '400 Content-Type', {
      'content-type': ['application/json', 'application/json'],
    }),
    read('are refused in another charset', WATCH_EVENT, '415 Content-Type', {
      'content-type': ['application/json; charset=utf-16'],
    }),
    read('are refused if compressed', WATCH_EVENT, '415 Content-Encoding', {
      ...JSON_HEADERS,
      'content-encoding': ['gzip'],
    }),
    read(
      'are refused with odd keys only',
      '{"__proto__":{"type":"ADDED"},"constructor":1}',
      '400 body',
    ),
  ]);

  it('are not quoted in the problem', () => {
    for (const body of ['{"password": s3cret}', '{"password":"s3cret"}', '"s3cret"', 's3cret']) {
      const read = orProblem(() => readEvents(JSON_HEADERS, Buffer.from(body)));
      assert.ok(read instanceof RequestProblem);
      assert.doesNotMatch(JSON.stringify(read), /s3cret|password/);
    }
  });
});

describe('bodies with odd JSON', () => {
  testEach([
    [
      'have the last of equal keys',
      JSON_HEADERS,
      `{"type":"x","object":5,${JSON.stringify(WATCH_EVENT).slice(1)}`,
      CLAIM_NOTICE,
    ],
    [
      'may begin with a byte order mark',
      JSON_HEADERS,
      `\uFEFF${JSON.stringify(WATCH_EVENT)}`,
      CLAIM_NOTICE,
    ],
    [
      'may have huge numbers and __proto__',
      JSON_HEADERS,
      `{"n":1e999,"__proto__":{"x":1},${JSON.stringify(WATCH_EVENT).slice(1)}`,
      CLAIM_NOTICE,
    ],
    [
      'may have escapes in names',
      JSON_HEADERS,
      JSON.stringify(WATCH_EVENT).replace('data-web', 'd\\u0061ta-web'),
      CLAIM_NOTICE,
    ],
  ]);
});

function typeOf(end: string): string {
  return `dev.knative.apiserver.${end}`;
}
