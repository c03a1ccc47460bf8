import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Code } from '#src/csi/status.ts';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import type { Claim, Event } from '#src/kube/objects.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { events as eventsOf } from '#src/kube/resources.ts';
import { silentLog } from '#src/runtime/log.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { Connection, type Fields } from '../conformance/connection.ts';
import { RIGHT, type RunningDashboard, startTestDashboard } from '../harness/dashboard-server.ts';
import { grantShipped, HOME } from '../harness/least-privilege/shipped-rights.ts';
import { DRIVER, ProcessBed } from '../harness/process-bed.ts';
import { realControlPlane, type RealControlPlane } from '../harness/real-control-plane.ts';
import { urlOf } from '../harness/redis-users.ts';
import type { Running } from '../harness/run-main.ts';
import type { SandboxCluster } from '../harness/sandbox-cluster.ts';
import { until } from '../harness/until.ts';

/* Twelve faults on a real control plane with the rights of k8s/: for each, how many seconds after
 * the claim was created an event, `sutler explain`, the first page of the dashboard and a metric
 * name its cause. The table is printed at the end. FAULTS_HOLD_SECONDS (default 150, with events
 * that expire after a minute) is how long the faults then last before all four are read again;
 * FAULTS_EVENT_TTL is another time after which they expire. */

const HOLD_SECONDS = Number(process.env['FAULTS_HOLD_SECONDS'] ?? 150);
const EVENT_TTL = process.env['FAULTS_EVENT_TTL'] ?? '1m';
const WITHIN_MS = 30_000;
const POLICIES = '/apis/admissionregistration.k8s.io/v1';
/** The namespace whose secrets jobs may read. */
const READABLE = 'more-secrets';

/** What has to be told of a fault. */
interface Told {
  readonly event: RegExp;
  /** Name of the cause for explain, page and metric. */
  readonly cause: string;
  readonly sentence: RegExp;
}

/** A fault of one claim: the fields of its class, and what has to be told. */
type ClassFault = Told & { readonly parameters?: Readonly<Record<string, string>> };

const secretIn = (namespace: string): Readonly<Record<string, string>> => ({
  'csi.storage.k8s.io/provisioner-secret-name': 'credentials',
  'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
});

const CLASS_FAULTS: Readonly<Record<string, ClassFault>> = {
  'secret-absent': {
    parameters: secretIn(READABLE),
    event: /secrets "credentials" not found/,
    cause: 'Secret',
    sentence: /secrets "credentials" not found/,
  },
  'secret-forbidden': {
    parameters: secretIn('default'),
    event: /secrets "credentials" is forbidden/,
    cause: 'Secret',
    sentence: /forbidden/,
  },
  'class-absent': {
    // kube-controller-manager tells it.
    event: /storageclass\.storage\.k8s\.io "class-absent" not found/,
    cause: 'ClassNotFound',
    sentence: /StorageClass "class-absent" does not exist/,
  },
  'parameter-wrong': {
    parameters: { mode: 'wrong' },
    event: /mode "wrong" is none of/,
    cause: 'InvalidArgument',
    sentence: /mode "wrong" is none of/,
  },
  'driver-full': {
    parameters: { mode: 'full' },
    event: /no space left in the pool/,
    cause: 'ResourceExhausted',
    sentence: /no space left in the pool/,
  },
  'driver-slow': {
    parameters: { mode: 'slow' },
    event: /DeadlineExceeded/,
    cause: 'DeadlineExceeded',
    sentence: /DeadlineExceeded/,
  },
  'pv-refused': {
    event: /volumes of this class are not allowed/,
    cause: 'Forbidden',
    sentence: /volumes of this class are not allowed/,
  },
};

/** Answers CreateVolume as the class asks for. */
function answer({ method, request, signal }: DriverCall): unknown {
  if (method !== 'CreateVolume') return undefined;
  const { parameters } = request as unknown as { parameters: { readonly mode?: string } };
  const { mode } = parameters;
  if (mode === 'wrong')
    throw new DriverStatus(Code.InvalidArgument, 'mode "wrong" is none of fast, safe');
  if (mode === 'full') throw new DriverStatus(Code.ResourceExhausted, 'no space left in the pool');
  return mode === 'slow'
    ? new Promise((_, reject) => signal.addEventListener('abort', reject))
    : undefined;
}

// The policies and rights of the cluster of KUBECONFIG are not the test's to change.
const skip = (process.env['KUBEBUILDER_ASSETS'] ?? '') === '' && 'no kube-apiserver to start';

describe('twelve faults, told where people look', { skip }, () => {
  let bed: ProcessBed;
  let api: Connection;
  let dashboard: RunningDashboard;
  let ingest: Running;
  let jobs: Running;
  let startJobs: () => Promise<Running>;
  const rows = new Map<string, string>();
  const lasting = new Map<string, { readonly claim: Claim; readonly told: Told }>();

  before(async () => {
    const open = realControlPlane(process.env, { binder: true, eventTtl: EVENT_TTL });
    const plane = await open();
    bed = await ProcessBed.open({ onCall: answer, openCluster: () => asBedCluster(plane) });
    api = new Connection(plane);
    const { kubeconfigs } = await grantShipped(api, plane, {
      base: HOME,
      'secrets-by-namespace': READABLE,
    });
    const home = `--leader-election-namespace=${HOME}`;
    const lasts = `--retry-interval-max=${EVENT_TTL === '1m' ? '20s' : '5m'}`;
    ingest = await bed.startIngest(`--kubeconfig=${kubeconfigs.ingest}`, home);
    startJobs = () => bed.startJobs(`--kubeconfig=${kubeconfigs.jobs}`, home, lasts);
    jobs = await startJobs();
    dashboard = await startTestDashboard(urlOf('dashboard', bed.redis.url));
    await refuseVolumesOf('pv-refused');
    await isWorking();
  });
  after(async () => {
    for (const [name, row] of rows) process.stdout.write(`# ${name.padEnd(30)} ${row}\n`);
    await dashboard.close();
    await api.close();
    await bed.close();
  });

  for (const [name, fault] of Object.entries(CLASS_FAULTS))
    it(`${name} is told`, async () => {
      const { parameters = {} } = fault;
      if (name !== 'class-absent') await bed.createClass(name, { provisioner: DRIVER, parameters });
      const claim = await bed.newClaim('1Mi', { storageClassName: name });
      await measure(name, claim, fault);
      lasting.set(name, { claim, told: fault });
    });

  it('all of them are told after the events have expired', async () => {
    await delay(HOLD_SECONDS * 1_000);
    for (const [name, { claim, told }] of lasting)
      await measure(`${name} after ${HOLD_SECONDS} s`, claim, told);
  });

  it('a drain is told', async () => {
    await bed.operate('drain');
    await measure('drained', await bed.newClaim(), {
      event: /drained by .* --undo/,
      cause: 'Drained',
      sentence: /drained by/,
    });
    await bed.operate('drain', '--undo');
    await isWorking();
  });

  it('that no worker lives is told', async () => {
    await jobs.stop();
    await measure('no worker', await bed.newClaim(), {
      event: /no jobs process works for driver .*; see \/readyz of jobs/,
      cause: 'NoWorker',
      sentence: /no jobs process works/,
    });
    jobs = await startJobs();
    await isWorking();
  });

  it('a gateway that is away is told', async () => {
    await bed.stopGateway();
    await measure('gateway away', await bed.newClaim(), {
      event: /gateway.*gateway\.sock/,
      cause: 'Unreachable',
      sentence: /can't be reached.*gateway/,
    });
    await bed.startGateway();
    await isWorking();
  });

  it('a Redis that is away is told', async () => {
    await bed.redis.kill();
    const claim = await bed.newClaim();
    const startMs = Date.now();
    const { address } = dashboard.link;
    rows.set(
      'Redis away',
      await timed(startMs, {
        kubectl: () => hasEvent(claim, /provisioning waits for Redis/),
        explain: async () => (await explain(claim)).includes(address),
        page: async () => (await page('/')).includes(address),
        metric: async () => /sutler_check_failed\{check="redis"\} 1/.test(await metrics()),
      }),
    );
    await bed.redis.start();
    await isWorking();
  });

  it('a driver that is dead is told', async () => {
    await bed.driver.close();
    await measure('driver dead', await bed.newClaim(), {
      event: /driver.*csi\.sock/,
      cause: 'Unreachable',
      sentence: /can't be reached.*csi\.sock/,
    });
  });

  /** Waits until event, explain, page and metric tell it. */
  async function measure(name: string, claim: Claim, told: Told): Promise<void> {
    const { cause, sentence } = told;
    const { storageClassName: className = '' } = claim.spec;
    const object = `default/${claim.metadata.name}`;
    const metric = `sutler_claims_pending{driver="${DRIVER}",class="${className}",cause="${cause}"}`;
    const startMs = Date.now();
    const row = await timed(startMs, {
      kubectl: () => hasEvent(claim, told.event),
      explain: async () => {
        const text = await explain(claim);
        return new RegExp(`cause: +${cause}\n`).test(text) && sentence.test(text);
      },
      page: async () => {
        const text = await page(`/?class=${className}&cause=${cause}`);
        return (
          text.includes(object) &&
          sentence.test(text.replaceAll('&quot;', '"').replaceAll('&#39;', "'"))
        );
      },
      metric: async () => (await metrics()).includes(metric),
    });
    rows.set(name, row);
  }

  async function hasEvent({ metadata: { uid } }: Claim, message: RegExp): Promise<boolean> {
    const { items } = await bed.kube.list<Event>(eventsOf, { namespace: 'default' });
    return items.some((each) => each.involvedObject.uid === uid && message.test(each.message));
  }

  const explain = (claim: Claim): Promise<string> =>
    bed.operate('explain', `default/${claim.metadata.name}`);

  async function page(path: string): Promise<string> {
    return (await dashboard.send(path, { basic: RIGHT })).text;
  }

  async function metrics(): Promise<string> {
    return (await fetch(`${ingest.url}/metrics`)).text();
  }

  async function isWorking(): Promise<void> {
    const claim = await bed.newClaim();
    await until(() => bed.isBound(claim), 'a claim is Bound');
  }

  /** Has the API server refuse the PersistentVolumes of a class, and waits until it does. */
  async function refuseVolumesOf(className: string): Promise<void> {
    const name = 'no-volumes';
    await api.create(`${POLICIES}/validatingadmissionpolicies`, {
      metadata: { name },
      spec: {
        matchConstraints: {
          resourceRules: [
            {
              apiGroups: [''],
              apiVersions: ['v1'],
              operations: ['CREATE'],
              resources: ['persistentvolumes'],
            },
          ],
        },
        validations: [
          {
            expression: `object.spec.storageClassName != '${className}'`,
            message: 'volumes of this class are not allowed',
          },
        ],
      },
    });
    await api.create(`${POLICIES}/validatingadmissionpolicybindings`, {
      metadata: { name },
      spec: { policyName: name, validationActions: ['Deny'] },
    });
    const volume: Fields = {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: 'probe' },
      spec: {
        storageClassName: className,
        capacity: { storage: '1Mi' },
        accessModes: ['ReadWriteOnce'],
        hostPath: { path: '/none' },
      },
    };
    await until(async () => {
      const path = '/api/v1/persistentvolumes?dryRun=All';
      return (await api.call('POST', path, { body: volume })).text.includes('not allowed');
    }, 'the policy is in force');
  }
});

/** @returns how many seconds after `startMs` each of them was true, for the table */
async function timed(
  startMs: number,
  asks: Readonly<Record<string, () => Promise<boolean>>>,
): Promise<string> {
  const cells = Object.entries(asks).map(async ([name, ask]) => {
    const isTold = async (): Promise<boolean> => (await ask()) || delay(50, false);
    await until(isTold, `${name} tells the cause`, WITHIN_MS);
    return `${name} ${((Date.now() - startMs) / 1_000).toFixed(1)}`;
  });
  const settled = await Promise.allSettled(cells);
  const failed = settled.flatMap((each) =>
    each.status === 'rejected' ? [(each.reason as Error).message] : [],
  );
  assert.deepEqual(failed, []);
  return settled.map((each) => (each.status === 'fulfilled' ? each.value : '')).join('  ');
}

/** The control plane as the cluster of a bed. */
async function asBedCluster(plane: RealControlPlane): Promise<SandboxCluster> {
  const { kubeconfig } = plane;
  const access = await loadClusterAccess({ kubeconfig, env: {} });
  const clients: KubeClient[] = [];
  return {
    kubeconfig,
    access,
    get api(): never {
      throw new Error('the API server is not the sandbox’s');
    },
    client() {
      const client = createKubeClient({ access, userAgent: 'test', log: silentLog });
      clients.push(client);
      return Promise.resolve(client);
    },
    async close() {
      await Promise.all(clients.map((client) => client.close()));
      await plane.close();
    },
  };
}
