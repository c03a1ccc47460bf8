import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import { type CallSample, createDriverMetrics } from '#src/driver/metrics.ts';
import { Registry } from '#src/runtime/metrics.ts';
import { PLUGINS } from '#src/migration/plugins.ts';

const CREATE: CallSample = {
  driver: 'a.driver',
  path: '/csi.v1.Controller/CreateVolume',
  code: Code.OK,
  seconds: 1,
  migrated: false,
};
const PROBE: CallSample = { ...CREATE, driver: '', path: '/csi.v1.Identity/Probe' };

/** Lines of the call histogram, without its name. */
async function histogramLines(...calls: readonly CallSample[]): Promise<readonly string[]> {
  const registry = new Registry();
  const metrics = createDriverMetrics(registry);
  for (const call of calls) metrics.observeCall(call);
  const name = 'csi_sidecar_operations_seconds';
  const text = await registry.metrics();
  return text
    .split('\n')
    .flatMap((line) => (line.startsWith(`${name}_`) ? [line.slice(name.length + 1)] : []));
}

async function countLines(...calls: readonly CallSample[]): Promise<readonly string[]> {
  return (await histogramLines(...calls)).filter((line) => line.startsWith('count{')).toSorted();
}

const LABELS =
  'driver_name="a.driver",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="OK"';

describe('the call histogram', () => {
  it('has upstream’s buckets (Q-41)', async () => {
    const lines = await histogramLines({ ...CREATE, seconds: 20 });
    assert.deepEqual(
      lines
        .filter((line) => line.startsWith('bucket'))
        .map((line) => /le="([^"]+)".* (\d)$/.exec(line)?.slice(1).join(' ')),
      [
        '0.1 0',
        '0.25 0',
        '0.5 0',
        '1 0',
        '2.5 0',
        '5 0',
        '10 0',
        '15 0',
        '25 1',
        '50 1',
        '120 1',
        '300 1',
        '600 1',
        '+Inf 1',
      ],
    );
  });

  it('counts each call, with labels for method, code and driver (Q-39, Q-44)', async () => {
    const refused = { ...CREATE, code: Code.InvalidArgument };
    const counts = await countLines(CREATE, CREATE, refused);
    assert.deepEqual(counts, [
      `count{${LABELS.replace('OK', 'InvalidArgument')}} 1`,
      `count{${LABELS}} 2`,
    ]);
    for (const line of await histogramLines(CREATE)) assert.ok(line.includes(LABELS), line);
  });

  it('uses the label unknown-driver while the name of the driver is not known (Q-42)', async () =>
    assert.deepEqual(await countLines(PROBE), [
      'count{driver_name="unknown-driver",method_name="/csi.v1.Identity/Probe",' +
        'grpc_status_code="OK"} 1',
    ]));

  it('labels a call with the Go name of its code (Q-43)', async () => {
    for (const [code, name] of [
      [Code.InvalidArgument, 'InvalidArgument'],
      [Code.DeadlineExceeded, 'DeadlineExceeded'],
      [77, 'Code(77)'],
    ] as const)
      assert.match(
        (await countLines({ ...CREATE, code }))[0] ?? '',
        new RegExp(`grpc_status_code="${name.replace(/[()]/g, '\\$&')}"`),
      );
  });

  for (const { csiDriver } of PLUGINS) {
    it(`labels each call to ${csiDriver} with migrated (Q-40, Q-45, Q-49)`, async () => {
      const labels = LABELS.replace('a.driver', csiDriver);
      const call = { ...CREATE, driver: csiDriver };
      assert.deepEqual(
        await countLines(call, { ...call, migrated: true }, { ...call, migrated: true }),
        [`count{${labels},migrated="false"} 1`, `count{${labels},migrated="true"} 2`],
      );
    });
  }

  it('has no label migrated for a driver without an in-tree counterpart', async () =>
    assert.deepEqual(await countLines({ ...CREATE, migrated: true }), [`count{${LABELS}} 1`]));

  it('has the same labels on every series, none empty (Q-46, Q-47, Q-48)', async () => {
    const own = ['driver_name', 'method_name', 'grpc_status_code'];
    for (const [driver, labels] of [
      ['a.driver', own],
      ['ebs.csi.aws.com', [...own, 'migrated']],
    ] as const) {
      const call = { ...CREATE, driver };
      for (const line of await countLines(
        call,
        { ...call, code: 77 },
        { ...call, path: '/a.B/C', migrated: true },
      )) {
        const pairs = [...line.matchAll(/(\w+)="([^"]*)"/g)];
        assert.deepEqual(
          pairs.map(([, name]) => name),
          labels,
        );
        assert.ok(
          pairs.every(([, , value]) => value !== ''),
          line,
        );
      }
    }
  });

  it('removes series without migrated once a migrated driver is known', async () => {
    const call = { ...CREATE, driver: 'ebs.csi.aws.com' };
    const counts = await countLines(PROBE, { ...PROBE, code: Code.Unavailable }, call, PROBE, call);
    assert.deepEqual(counts, [
      `count{${LABELS.replace('a.driver', 'ebs.csi.aws.com')},migrated="false"} 2`,
    ]);
    assert.equal((await countLines(PROBE, CREATE)).length, 2, 'for other drivers they stay');
  });
});
