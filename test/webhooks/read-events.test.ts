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

const withoutExtensions = {
  specversion: '1.0',
  id: 'id-1',
  source: 's',
  type: 'dev.knative.apiserver.resource.add',
};
const volumeEvent = {
  ...STRUCTURED,
  data: { kind: 'PersistentVolume', name: 'pvc-6d1f', apiVersion: 'v1', namespace: 'x' },
  kind: 'PersistentVolume',
  name: 'pvc-6d1f',
  namespace: '',
};

describe('CloudEvents in structured mode', () => {
  const read = (title: string, change: object, expected: unknown) =>
    [title, STRUCTURED_HEADERS, { ...STRUCTURED, ...change }, expected] as const;
  const bare = (title: string, change: object, expected: unknown) =>
    [title, STRUCTURED_HEADERS, { ...withoutExtensions, ...change }, expected] as const;
  const refer = (title: string, change: object, expected: unknown) =>
    bare(
      title,
      { type: 'dev.knative.apiserver.ref.add', data: { ...CLAIM_REFERENCE, ...change } },
      expected,
    );
  const inBase64 = Buffer.from(JSON.stringify(VOLUME)).toString('base64');
  testEach([
    read('name a claim by a reference', {}, CLAIM_NOTICE),
    bare('name a claim by the whole object', { data: CLAIM }, CLAIM_NOTICE),
    read('name a volume, whose namespace is not looked at', volumeEvent, VOLUME_NOTICE),
    read('may have extensions that nobody knows', { other: 5 }, CLAIM_NOTICE),
    read('are refused if the extension names another object', { name: 'other' }, '400 name'),
    read('are refused if the extension has another group', { apiversion: 'v2' }, '400 apiversion'),
    read('without data name the object by extensions', { data: undefined }, CLAIM_NOTICE),
    read('of other types are ignored', { type: 'com.example.order' }, 'other-type'),
    refer('about another kind are ignored', { kind: 'Pod' }, 'other-kind'),
    refer('about another group are ignored', { apiVersion: 'x.io/v1' }, 'other-group'),
    read('need an id that is not empty', { id: '' }, '400 id'),
    read('need a source', { source: null }, '400 source'),
    read('need version 1.0', { specversion: '0.3' }, '400 specversion'),
    read('have no data twice', { data_base64: 'e30=' }, '400 data_base64'),
    read('have data that is JSON', { datacontenttype: 'text/xml' }, '400 datacontenttype'),
    read('have data that is an object', { data: 'text' }, '400 data'),
    refer('need a kind', { kind: undefined }, '400 data.kind'),
    refer('need a name', { name: '' }, '400 data.name'),
    refer('need a namespace for a claim', { namespace: '' }, '400 data.namespace'),
    refer('need a legal name', { name: '../x' }, '400 data.name'),
    bare('may have data in base64', { data_base64: inBase64 }, VOLUME_NOTICE),
    bare('need good base64', { data_base64: '{"a":1}' }, '400 data_base64'),
    bare('need data', {}, '400 data'),
    bare('need metadata in a whole object', { data: CLAIM_REFERENCE }, '400 data.metadata'),
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
      'name a volume, whose namespace header is empty',
      { 'ce-kind': ['PersistentVolume'], 'ce-name': ['pvc-6d1f'], 'ce-namespace': [''] },
      VOLUME_NOTICE,
      VOLUME,
    ),
    read('are decoded once from percent-encoding', { 'ce-name': ['data%2dweb%2D0'] }, CLAIM_NOTICE),
    read('are decoded only once', { 'ce-name': ['data%252dweb-0'] }, '400 ce-name'),
    read('may be quoted', { 'ce-name': ['"data-web\\-0"'] }, CLAIM_NOTICE),
    read('need valid UTF-8', { 'ce-subject': ['%C0%A0'] }, '400 ce-subject'),
    read('have no bare %', { 'ce-subject': ['100%'] }, '400 ce-subject'),
    read('have each attribute once', { 'ce-id': ['a', 'b'] }, '400 ce-id'),
    read('need data', {}, '400 body', ''),
    read('need data that is JSON', { 'content-type': ['text/plain'] }, '415 Content-Type'),
    read('of other types are ignored whatever they bring', { 'ce-type': ['x'] }, 'other-type', '<'),
    read('without an id may be a watch event', { 'ce-id': undefined }, CLAIM_NOTICE, WATCH_EVENT),
  ]);
});

describe('CloudEvents of the SDK for JavaScript', () => {
  const event = new CloudEvent({
    id: 'id-4',
    source: 'https://10.0.0.1:443',
    type: 'dev.knative.apiserver.ref.update',
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

  testEach([
    ['must be arrays', BATCH_HEADERS, STRUCTURED, '400 body'],
    ['have a thousand events at most', BATCH_HEADERS, Array(1_001).fill(STRUCTURED), '413 body'],
  ]);
});

describe('events of Argo Events', () => {
  const asText = Object.fromEntries(
    Object.entries(ARGO).map(([key, value]) => [key, value === null ? 'null' : textOf(value)]),
  );
  const context = { id: 'x', source: 'argo', specversion: '1.0', type: 'resource' };
  const data = Buffer.from(JSON.stringify(ARGO)).toString('base64');
  const missed = { Key: 'team-a/data-web-0', Obj: CLAIM };
  const named = { event: JSON.stringify({ context, data }) };
  const read = (title: string, change: object, expected: unknown) =>
    [title, {}, { ...ARGO, ...change }, expected] as const;
  testEach([
    read('name a claim, without a Content-Type', {}, CLAIM_NOTICE),
    ['may have all their parts as strings', JSON_HEADERS, asText, CLAIM_NOTICE],
    ['may be whole, with data in base64', JSON_HEADERS, { context, data }, CLAIM_NOTICE],
    ['may be under a name of the user', JSON_HEADERS, named, CLAIM_NOTICE],
    read('about a missed deletion are ignored', { type: 'DELETE', body: missed }, 'no-object'),
    read('of other types are ignored', { type: 'SYNC' }, 'other-type'),
    read('need a body', { body: undefined }, '400 body'),
    read('need a string that holds JSON', { body: '{"a"' }, '400 body'),
    [
      'of other event sources are ignored',
      JSON_HEADERS,
      { context: { ...context, type: 's3' }, data },
      'other-type',
    ],
    ['need good base64', JSON_HEADERS, { context, data: '%' }, '400 data'],
  ]);
});

describe('plain watch events', () => {
  const unnamed = { ...CLAIM, metadata: {} };
  const read = (title: string, event: unknown, expected: unknown) =>
    [title, JSON_HEADERS, event, expected] as const;
  testEach([
    read('name a claim', WATCH_EVENT, CLAIM_NOTICE),
    read('name a volume', { type: 'DELETED', object: VOLUME }, VOLUME_NOTICE),
    read('ignore bookmarks', { type: 'BOOKMARK', object: { kind: 'Pod' } }, 'no-object'),
    read('ignore other types', { type: 'CHANGED', object: CLAIM }, 'other-type'),
    read('need an object', { type: 'ADDED' }, '400 object'),
    read('need a name', { type: 'ADDED', object: unnamed }, '400 object.metadata.name'),
    read('come one in a request', `${textOf(WATCH_EVENT)}\n${textOf(WATCH_EVENT)}`, '400 body'),
  ]);
});

describe('bodies that are no event', () => {
  const plain = { 'content-type': ['text/plain'] };
  const utf16 = { 'content-type': ['application/json; charset=utf-16'] };
  const gzip = { ...JSON_HEADERS, 'content-encoding': ['gzip'] };
  testEach([
    ['are refused if empty', JSON_HEADERS, '', '400 body'],
    ['are refused if they are no UTF-8', JSON_HEADERS, Buffer.from([0x22, 0xff]), '400 body'],
    ['are refused if they are a scalar', JSON_HEADERS, '5', '400 body'],
    ['are refused if deep', JSON_HEADERS, '['.repeat(1e6) + ']'.repeat(1e6), '400 body'],
    ['are refused if they are a plain object', JSON_HEADERS, CLAIM, '400 body'],
    ['are refused if a CloudEvent of another type', JSON_HEADERS, STRUCTURED, '400 Content-Type'],
    ['are refused with another media type', plain, WATCH_EVENT, '415 Content-Type'],
    ['are refused in another charset', utf16, WATCH_EVENT, '415 Content-Type'],
    ['are refused if compressed', gzip, WATCH_EVENT, '415 Content-Encoding'],
    ['may begin with a byte order mark', {}, `\uFEFF${textOf(WATCH_EVENT)}`, CLAIM_NOTICE],
  ]);

  it('are not quoted in the problem', () => {
    for (const body of ['{"password": s3cret}', '{"password":"s3cret"}', '"s3cret"', 's3cret']) {
      const read = orProblem(() => readEvents(JSON_HEADERS, Buffer.from(body)));
      assert.ok(read instanceof RequestProblem);
      assert.doesNotMatch(JSON.stringify(read), /s3cret|password/);
    }
  });
});
