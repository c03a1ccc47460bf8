import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { leaseName } from '#src/election/lease.ts';
import type { Lease } from '#src/kube/objects.ts';
import { leases } from '#src/kube/resources.ts';
import { type DropInBed, type DropInOptions, onDropInBed } from '../../harness/drop-in-bed.ts';
import type { SutlerProcess } from '../../harness/program.ts';
import { makeNode } from '../../harness/real-nodes.ts';
import { realControlPlane, type RealControlPlane } from '../../harness/real-control-plane.ts';
import { until } from '../../harness/until.ts';
import {
  eventsOf,
  Gate,
  ofUpstream,
  pvsOf,
  readMetric,
  type Start,
  startSutler,
} from '../../harness/why-bed.ts';

/** Claims of a burst. */
const BURST = 120;
/** What part of them may be done with the limit when all are done without, on a busy machine. */
const MOST = 2 / 3;
/** How often the driver's capacity is polled, while the driver does not answer. */
const POLLS = 5;
/** Upstream's defaults. */
const DEFAULT_LIMIT = ['--kube-api-qps=5', '--kube-api-burst=10'];
/** Those of rook. */
const SLOW_LEASE = [
  '--leader-election',
  '--leader-election-lease-duration=137s',
  '--leader-election-renew-deadline=107s',
  '--leader-election-retry-period=26s',
];

const open = realControlPlane(process.env, { binder: true });

describe('what users waited for', () => {
  let plane: RealControlPlane;
  let nodes = 0;
  before(async () => (plane = await open()));
  after(() => plane.close());

  it('a leader that is stopped gives its Lease back (rook #13475)', async () => {
    assert.equal(await holderAfterStop(startSutler), '');
  });

  it('another replica works long before a Lease of 137 s ends (rook #13475)', async () => {
    await onDropInBed(plane, {}, async (bed) => {
      const leader = await startSutler(bed, SLOW_LEASE);
      await until(async () => (await holderOf(bed)) !== '', 'the Lease has a holder');
      await startSutler(bed, SLOW_LEASE);
      await leader.stop();
      await bed.createClaim('after');
      await until(() => bed.isBound('after'), 'the claim is Bound', 20_000);
    });
  });

  it(
    'external-provisioner keeps its Lease when it is stopped (rook #13475)',
    ofUpstream(process.env, async (start) => {
      assert.notEqual(await holderAfterStop(start), '');
    }),
  );

  it(
    'external-provisioner gives its Lease back with an alpha feature gate (rook #13475)',
    ofUpstream(process.env, async (start) => {
      const gate = '--feature-gates=ReleaseLeaderElectionOnExit=true';
      const withGate: Start = (bed, args = []) => start(bed, [...args, gate]);
      assert.equal(await holderAfterStop(withGate), '');
    }),
  );

  it('explain says why no volume is created on a node (democratic-csi #397)', async () => {
    await onFullNode(startSutler, async (bed) => {
      const explained = async () => (await bed.exec('explain', `${bed.namespace}/large`)).out;
      await until(async () => /room/.test(await explained()), 'explain names the want of room');
    });
  });

  it(
    'external-provisioner says nothing of a claim that no node has room for (democratic-csi #397)',
    ofUpstream(process.env, async (start) => {
      const withLog: Start = (bed, args = [], env) => start(bed, [...args, '-v=5'], env);
      await onFullNode(withLog, async (bed, { output }) => {
        const isLeft = () => output().includes('provision false, err <nil>');
        await until(isLeft, 'its log has the words of the thread');
        assert.deepEqual(await eventsOf(bed, 'large'), []);
      });
    }),
  );

  it('a value of capacity is queued once, however slow the driver (topolvm #1201)', async () => {
    const startedMs = Date.now();
    // One poll a second; sutler counts none.
    const polls = () => Promise.resolve(Math.floor((Date.now() - startedMs) / 1000));
    const asked = ({ driver }: DropInBed) => Promise.resolve(driver.counts.get('GetCapacity') ?? 0);
    assert.equal(await queuedAfterPolls(startSutler, polls, (_, bed) => asked(bed)), 1);
  });

  it(
    'external-provisioner queues a value of capacity again at each poll (topolvm #1201)',
    ofUpstream(process.env, async (start) => {
      const name = 'name="csistoragecapacity"';
      const polls = (program: SutlerProcess) => readMetric(program, 'workqueue_adds_total', name);
      const depth = (program: SutlerProcess) => readMetric(program, 'workqueue_depth', name);
      assert.ok((await queuedAfterPolls(start, polls, depth)) >= POLLS - 1);
    }),
  );

  it('by default no limit of requests holds a burst back (weka/csi-wekafs #787)', async () => {
    const limited: Start = (bed, args = []) => startSutler(bed, [...args, ...DEFAULT_LIMIT]);
    assert.ok((await writtenMeanwhile(limited)) < BURST * MOST);
  });

  it(
    'external-provisioner has written a part of a burst meanwhile (weka/csi-wekafs #787)',
    ofUpstream(process.env, async (start) => {
      const limited: Start = (bed, args = []) => start(bed, [...args, ...DEFAULT_LIMIT]);
      const written = await writtenMeanwhile(limited);
      process.stdout.write(`external-provisioner: ${written} of ${BURST} PVs meanwhile\n`);
      assert.ok(written < BURST * MOST);
    }),
  );

  /** Starts sutler with its defaults beside a provisioner, and creates a burst of claims of each.
   * @returns how many PVs the other one has written when sutler has written all */
  function writtenMeanwhile(startOther: Start): Promise<number> {
    return onDropInBed(plane, {}, (bed) =>
      onDropInBed(plane, {}, async (other) => {
        const names = Array.from({ length: BURST }, (_, i) => `burst-${i}`);
        await bed.start();
        await startOther(other);
        for (const each of [bed, other]) {
          await each.createClaim('first');
          await until(() => each.isBound('first'), 'the first claim is Bound');
        }
        await Promise.all(names.flatMap((name) => [bed, other].map((at) => at.createClaim(name))));
        const isDone = async () => (await pvsOf(bed)).length > BURST;
        await until(isDone, 'sutler has written all PVs', 120_000);
        return (await pvsOf(other)).length - 1;
      }),
    );
  }

  async function holderOf({ kube, namespace, driverName }: DropInBed): Promise<string> {
    const lease = await kube.get<Lease>(leases, { namespace, name: leaseName(driverName) });
    return lease?.spec?.holderIdentity ?? '';
  }

  /** Who holds the Lease when its only provisioner has been stopped, as by a rolling update. */
  function holderAfterStop(start: Start): Promise<string> {
    return onDropInBed(plane, {}, async (bed) => {
      const leader = await start(bed, SLOW_LEASE);
      await until(async () => (await holderOf(bed)) !== '', 'the Lease has a holder');
      await bed.createClaim('before');
      await until(() => bed.isBound('before'), 'it works');
      await leader.stop();
      return holderOf(bed);
    });
  }

  /** Runs steps on a bed whose driver serves a node. */
  async function onNode<T>(
    o: Partial<DropInOptions> & { readonly capacityBytes: bigint },
    run: (bed: DropInBed, nodeName: string) => Promise<T>,
  ): Promise<T> {
    const name = `why-${(nodes += 1)}`;
    const topology = { 'why.example/node': name };
    const driverNode = { nodeId: name, topology, capacityBytes: o.capacityBytes };
    return onDropInBed(plane, { ...o, driverNode }, async (bed) => {
      await makeNode(plane.api, { name, driver: bed.driverName, labels: topology });
      return run(bed, name);
    });
  }

  /** Runs a provisioner for the node alone, whose driver has no room for a claim. */
  function onFullNode(
    start: Start,
    run: (bed: DropInBed, program: SutlerProcess) => Promise<void>,
  ): Promise<void> {
    return onNode({ capacityBytes: 1024n }, async (bed, node) => {
      const program = await start(bed, ['--node-deployment'], { NODE_NAME: node });
      await bed.createClaim('large');
      await run(bed, program);
    });
  }

  /** Polls the capacity of one class on one node again and again while the driver does not answer.
   * @returns what is queued then */
  async function queuedAfterPolls(
    start: Start,
    polls: (program: SutlerProcess) => Promise<number>,
    queued: (program: SutlerProcess, bed: DropInBed) => Promise<number>,
  ): Promise<number> {
    const answers = new Gate();
    answers.close();
    const onCall: DropInOptions['onCall'] = ({ method }) =>
      method === 'GetCapacity' ? answers.passed : undefined;
    return onNode({ capacityBytes: 1024n ** 3n, onCall }, async (bed) => {
      const flags = [
        '--enable-capacity',
        '--capacity-for-immediate-binding',
        '--capacity-ownerref-level=-1',
        '--capacity-poll-interval=1s',
        '--timeout=60s',
      ];
      const program = await start(bed, flags, { NAMESPACE: bed.namespace });
      await until(() => (bed.driver.counts.get('GetCapacity') ?? 0) > 0, 'the driver is asked');
      await until(async () => (await polls(program)) > POLLS, `${POLLS} polls`);
      const found = await queued(program, bed);
      answers.open();
      return found;
    });
  }
});
