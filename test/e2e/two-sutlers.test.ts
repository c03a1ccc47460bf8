import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Code } from '#src/csi/status.ts';
import type { KubeClient } from '#src/kube/client.ts';
import type { Claim, Event, Volume } from '#src/kube/objects.ts';
import { claims, events, volumes } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import { type DropInBed, type DropInOptions, openDropInBed } from '../harness/drop-in-bed.ts';
import type { SutlerProcess as DropIn } from '../harness/program.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import type { Running } from '../harness/run-main.ts';
import { openSandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

/** By owner: a drop-in in which nothing is wrong, separate processes whose driver goes away, and a
 * drop-in whose driver refuses, does not answer, or calls the request infeasible. */
const DRIVERS = { a: 'a.csi.example', b: DRIVER, c: 'c.csi.example' } as const;
type Owner = keyof typeof DRIVERS;
const OWNERS: readonly Owner[] = ['a', 'b', 'c'];
const TIMES = ['--timeout=1s', '--settle-time=1s'];

describe('sutlers of three drivers in one cluster and namespace', () => {
  const closers = new Closers();
  let kube: KubeClient;
  let bedOfA: DropInBed;
  let bedOfB: ProcessBed;
  let bedOfC: DropInBed;
  let a: DropIn;
  let ingestOfB: Running;
  let jobsOfB: Running;
  let c: DropIn;

  before(async () => {
    const cluster = await openSandboxCluster({ binder: true });
    closers.add('cluster', () => cluster.close());
    const { kubeconfig } = cluster;
    kube = await cluster.client();
    const openDropIn = async (
      driverName: string,
      onCall?: DropInOptions['onCall'],
    ): Promise<DropInBed> => {
      const bed = await openDropInBed({ kubeconfig, namespace: 'default', driverName, onCall });
      closers.add(driverName, async () => assert.deepEqual(await bed.close(), []));
      return bed;
    };
    bedOfA = await openDropIn(DRIVERS.a);
    const shared = { ...cluster, close: () => Promise.resolve() };
    bedOfB = await ProcessBed.open({ flags: TIMES, openCluster: () => Promise.resolve(shared) });
    closers.add('B', () => bedOfB.close());
    let calls = 0;
    bedOfC = await openDropIn(DRIVERS.c, ({ method, signal }) => {
      if (method !== 'CreateVolume') return undefined;
      calls += 1;
      if (calls % 3 === 0) throw new DriverStatus(Code.ResourceExhausted, 'the pool of C is full');
      if (calls % 3 === 1) throw new DriverStatus(Code.InvalidArgument, 'C can’t make that');
      return new Promise((_, reject) => {
        const end = () => reject(new DriverStatus(Code.Canceled, 'the caller is gone'));
        signal.addEventListener('abort', end);
      });
    });
    a = await bedOfA.start(TIMES);
    ingestOfB = await bedOfB.startIngest();
    jobsOfB = await bedOfB.startJobs();
    c = await bedOfC.start([...TIMES, '--retry-interval-start=200ms']);
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  const create = (owner: Owner, name: string): Promise<Claim> => {
    const classes = { a: bedOfA.className, b: 'sample', c: bedOfC.className };
    return bedOfA.createClaim(`of-${owner}-${name}`, {}, classes[owner]);
  };
  const bound = (name: string): Promise<void> =>
    until(() => bedOfA.isBound(name), `${name} is Bound`, 20_000);
  const messagesOn = async (owner: Owner): Promise<string> => {
    const { items } = await kube.list<Event>(events, { namespace: 'default' });
    return items
      .filter(({ involvedObject: { name } }) => name?.startsWith(`of-${owner}-`))
      .map(({ message }) => `${message}\n`)
      .join('');
  };
  const metricsOf = async (url: string): Promise<string> => (await fetch(`${url}/metrics`)).text();

  it('bind the claims of their own drivers', async () => {
    for (const owner of ['a', 'b'] as const) {
      await create(owner, 'first');
      await bound(`of-${owner}-first`);
    }
  });

  it('report failures on claims of their own drivers only', async () => {
    await bedOfB.stopGateway();
    for (const each of ['one', 'two', 'three'])
      for (const owner of ['b', 'c'] as const) await create(owner, each);
    await create('a', 'second');
    await bound('of-a-second');
    const [ofB, ofC] = [/gateway\.sock/, /the pool of C|C can’t/];
    await until(async () => ofC.test(await messagesOn('c')), 'C reports its failures');
    await until(async () => ofB.test(await messagesOn('b')), 'B reports its driver', 20_000);
    assert.doesNotMatch(await messagesOn('a'), new RegExp(`${ofB.source}|${ofC.source}`));
    assert.doesNotMatch(await messagesOn('b'), ofC);
    assert.doesNotMatch(await messagesOn('c'), ofB);
  });

  it('name in their logs no claim of another driver', () => {
    const logs: Readonly<Record<Owner, string>> = {
      a: a.output(),
      b: [...ingestOfB.output, ...jobsOfB.output].join(''),
      c: c.output(),
    };
    for (const owner of OWNERS)
      for (const other of OWNERS)
        if (owner !== other) assert.doesNotMatch(logs[owner], new RegExp(`of-${other}-`));
  });

  it('count in their metrics claims of their own drivers only', async () => {
    for (const [owner, { url }, expected] of [
      ['a', a, 0],
      ['b', ingestOfB, 3],
      ['b', jobsOfB, 0],
      ['c', c, 3],
    ] as const) {
      const named = (await metricsOf(url)).matchAll(
        /\b(?:driver|driver_name|provisioner)="([^"]+)"/g,
      );
      const others = [...named].filter(
        ([, name = '']) => !['unknown-driver', DRIVERS[owner]].includes(name),
      );
      assert.deepEqual(others, []);
      const isCounted = async (): Promise<boolean> => {
        const counts = (await metricsOf(url)).matchAll(/^sutler_claims_pending\{.*\} (\d+)$/gm);
        return [...counts].reduce((sum, [, count]) => sum + Number(count), 0) === expected;
      };
      await until(isCounted, `${expected} claims of ${owner}`, 20_000);
    }
  });

  it('tell in status of their own drivers only', async () => {
    const statusOf = async (bed: DropInBed): Promise<string> => {
      const { out, err } = await bed.exec('status');
      return out + err;
    };
    const told = {
      a: await statusOf(bedOfA),
      b: await bedOfB.operate('status'),
      c: await statusOf(bedOfC),
    };
    for (const owner of OWNERS)
      for (const other of OWNERS)
        assert.equal(told[owner].includes(DRIVERS[other]), owner === other, told[owner]);
  });

  it('delete volumes of their own drivers only', async () => {
    await bedOfB.startGateway();
    for (const each of ['one', 'two', 'three']) await bound(`of-b-${each}`);
    for (const { metadata } of (await kube.list<Claim>(claims, { namespace: 'default' })).items)
      await kube.delete(claims, metadata);
    const left = async () => (await kube.list<Volume>(volumes, {})).items.length;
    await until(async () => (await left()) === 0, 'no PV is left', 30_000);
    assert.deepEqual([bedOfA.handles(), bedOfB.driver.volumes()], [[], []]);
    assert.deepEqual((await kube.list<Claim>(claims, { namespace: 'default' })).items, []);
  });
});
