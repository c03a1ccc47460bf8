import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { KubeObject } from '#src/kube/objects.ts';
import { endpointSlices } from '#src/kube/resources.ts';
import { ProcessBed } from '../harness/process-bed.ts';
import { isReady, type Running } from '../harness/run-main.ts';
import { type Replica, startReplica } from '../harness/replicas.ts';
import { until } from '../harness/until.ts';

const NAMESPACE = 'default';
const CLAIMS = 60;
/** Of the test that waits for it. */
const TIMEOUT_MS = 4_000;

describe('a driver with two replicas', () => {
  let replicas: readonly Replica[];
  let bed: ProcessBed;
  const created = (): readonly number[] =>
    replicas.map(({ driver }) => driver.counts.get('CreateVolume') ?? 0);

  beforeEach(async () => {
    replicas = [await startReplica('uid-0'), await startReplica('uid-1')];
  });
  afterEach(async () => {
    await bed.close();
    for (const replica of replicas) await replica.close();
  });

  /** Starts one ingest and two jobs. */
  async function start(timeoutMs = 60_000): Promise<readonly Running[]> {
    bed = await ProcessBed.open({
      gatewayFlags: [`--gateway-service=${NAMESPACE}/gateways`, '--gateway-insecure'],
      flags: [`--timeout=${timeoutMs}ms`],
    });
    for (const index of replicas.keys()) await writeSlice(index);
    const running = [
      await bed.startIngest(),
      await bed.startJobs('--settle-time=1s'),
      await bed.startJobs('--settle-time=1s'),
    ];
    for (const each of running) await until(() => isReady(each), 'ready');
    return running;
  }

  /** The EndpointSlice of one replica: all addresses of a slice have the same ports. */
  async function writeSlice(index: number): Promise<void> {
    const pod = { kind: 'Pod', namespace: NAMESPACE, name: `csi-${index}`, uid: `uid-${index}` };
    await bed.kube.create<KubeObject>(endpointSlices, NAMESPACE, {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: `gateways-${index}`,
        namespace: NAMESPACE,
        labels: { 'kubernetes.io/service-name': 'gateways' },
      },
      addressType: 'IPv4',
      endpoints: [{ addresses: ['127.0.0.1'], targetRef: pod, conditions: { ready: true } }],
      ports: [{ name: 'gateway', port: replicas[index]?.port, protocol: 'TCP' }],
    });
  }

  async function provision(count: number): Promise<void> {
    const claims = await Promise.all(Array.from({ length: count }, () => bed.newClaim()));
    for (const claim of claims) await until(() => bed.isBound(claim), 'bound');
  }

  /** Indexes of the replica that has got all calls, and of the other one. */
  const activeAndOther = (): readonly [number, number] => {
    const other = created().indexOf(0);
    assert.ok(Math.max(...created()) > 0 && other !== -1, created().join(' and '));
    return [1 - other, other];
  };

  it('gets the calls of all workers at one of them, named by --gateway-service', async () => {
    await start();
    await provision(CLAIMS);
    activeAndOther();
  });

  it('gets them at the other one once the first is unreachable for longer than --timeout', async () => {
    const [ingest] = await start(TIMEOUT_MS);
    await provision(5);
    const [active, other] = activeAndOther();
    const before = created()[active];
    const goneMs = Date.now();
    await replicas[active]?.kill();
    await provision(5);
    // Until it moves, and until calls at the first one have ended.
    assert.ok(Date.now() - goneMs > 2 * TIMEOUT_MS);
    assert.equal(created()[active], before);
    assert.equal(created()[other], 5);
    assert.match(ingest?.output.join('') ?? '', /active gateway moved.*pod:csi-/);
  });

  it('gets them at the other one at once when the first has drained', async () => {
    const [ingest] = await start();
    await provision(CLAIMS);
    const [active, other] = activeAndOther();
    await replicas[active]?.gateway.close(5_000);
    await provision(5);
    assert.equal(created()[other], 5);
    assert.match(ingest?.output.join('') ?? '', /it is drained/);
  });
});
