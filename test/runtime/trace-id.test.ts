import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { logFields } from '#src/queue/contract.ts';
import { traceHeaders, traceIdIn } from '#src/runtime/trace-id.ts';

const UID = '0af76519-16cd-43dd-8448-eb211c80319c';
const TRACE = '0af7651916cd43dd8448eb211c80319c';

describe('the trace of a claim', () => {
  it('has its UID as id, in log lines and in calls', () => {
    const key = { kind: 'claim', uid: UID, namespace: 'default', name: 'data' } as const;
    assert.deepEqual(logFields(key), { claim: 'default/data', trace: TRACE });
    const { traceparent } = traceHeaders(UID);
    assert.match(traceparent ?? '', new RegExp(`^00-${TRACE}-[0-9a-f]{16}-01$`));
    assert.equal(traceIdIn(traceparent), TRACE);
  });

  it('is that of its volume, which is named for it', () => {
    const key = { kind: 'volume', uid: UID.replace('0', '1'), namespace: '' } as const;
    assert.equal(logFields({ ...key, name: `pvc-${UID}` })['trace'], TRACE);
    assert.equal(logFields({ ...key, name: 'static' })['trace'], TRACE.replace('0', '1'));
  });

  it('is none where the UID is no UUID, and of a header that can’t be read', () => {
    assert.deepEqual(traceHeaders('42'), {});
    const key = { kind: 'claim', uid: '42', namespace: 'default', name: UID } as const;
    assert.deepEqual(logFields(key), { claim: `default/${UID}`, key: 'claim/42' });
    for (const header of [undefined, '', `00-${TRACE}`, `00-${TRACE.toUpperCase()}-1-01`])
      assert.equal(traceIdIn(header), undefined);
  });
});
