import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Code } from '#src/csi/status.ts';
import type { Claim, Class, Event } from '#src/kube/objects.ts';
import { classes, events as eventsOf, secrets } from '#src/kube/resources.ts';
import { Closers } from '#src/runtime/closers.ts';
import { childrenOf } from '../../bench/proc.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import type { Connection, Fields } from '../conformance/connection.ts';
import { PASSWORD, RIGHT } from '../harness/dashboard-server.ts';
import { type DropInBed, openDropInBed } from '../harness/drop-in-bed.ts';
import { freePort } from '../harness/free-port.ts';
import { type Program, startProgram, type SutlerProcess } from '../harness/program.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';
import { ACCOUNT, grantUpstreamRules, RBAC } from '../harness/upstream-rights.ts';

/* Faults of `sutler all` with the rights of external-provisioner: for each an event, `sutler
 * explain`, the first page of the dashboard and a metric name its cause, also after the events have
 * expired; and its claim is Bound once it is mended, by itself or by the command that explain
 * names. */

const EVENT_TTL = '1m';
/** Longer than the API server takes to remove events that have expired. */
const HOLD_MS = 150_000;
const WITHIN_MS = 30_000;
/** Within which a claim is Bound by the command that explain names. The back-off is longer. */
const BY_COMMAND_MS = 5_000;
const BACK_OFF = '20s';
const DRIVER = 'faults.csi.example';
const POLICIES = '/apis/admissionregistration.k8s.io/v1';
/** The namespace whose secrets sutler may read. */
const READABLE = 'more-secrets';
const SANDBOX = fileURLToPath(new URL('../../sandbox/cli.js', import.meta.url));

/** What has to be told of a fault. */
interface Told {
  readonly event: RegExp;
  /** Name of the cause for explain, page and metric. */
  readonly cause: string;
  readonly sentence: RegExp;
}

/** A fault of one claim: the parameters of its class, what has to be told, and what mends it. */
interface Fault extends Told {
  readonly parameters?: Readonly<Record<string, string>>;
  readonly mend: () => Promise<unknown>;
  /** sutler sees its end, also where explain names a command for that. */
  readonly isSeen?: true;
}

/** The modes that the driver refuses no more. */
const mended = new Set<string>();
let bed: DropInBed;
let api: Connection;

const secretIn = (namespace: string): Readonly<Record<string, string>> => ({
  'csi.storage.k8s.io/provisioner-secret-name': 'credentials',
  'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
});

const createSecret = (namespace: string): Promise<unknown> =>
  bed.kube.create(secrets, namespace, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'credentials', namespace },
    data: { key: 'dmFsdWU=' },
  });

/** Lets sutler read the secrets of a namespace. */
async function grantSecrets(namespace: string): Promise<void> {
  const roles = `${RBAC}/namespaces/${namespace}`;
  const metadata = { name: 'secrets' };
  const rules = [{ apiGroups: [''], resources: ['secrets'], verbs: ['get'] }];
  await api.create(`${roles}/roles`, { metadata, rules });
  await api.create(`${roles}/rolebindings`, {
    metadata,
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: metadata.name },
    subjects: [{ kind: 'ServiceAccount', name: ACCOUNT, namespace: bed.namespace }],
  });
}

const createClass = (
  name: string,
  parameters: Readonly<Record<string, string>> = {},
): Promise<unknown> =>
  bed.kube.create<Class>(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name },
    provisioner: DRIVER,
    parameters,
  });

const CLASS_FAULTS: Readonly<Record<string, Fault>> = {
  'secret-absent': {
    parameters: secretIn(READABLE),
    event: /secrets "credentials" not found/,
    cause: 'Secret',
    sentence: /secrets "credentials" not found/,
    mend: () => createSecret(READABLE),
  },
  'secret-forbidden': {
    parameters: secretIn('default'),
    event: /secrets "credentials" is forbidden/,
    cause: 'Secret',
    sentence: /forbidden/,
    mend: async () => {
      await createSecret('default');
      await grantSecrets('default');
    },
  },
  'class-absent': {
    // kube-controller-manager tells it.
    event: /storageclass\.storage\.k8s\.io "class-absent" not found/,
    cause: 'ClassNotFound',
    sentence: /StorageClass "class-absent" does not exist/,
    mend: () => createClass('class-absent'),
  },
  'parameter-wrong': {
    parameters: { mode: 'wrong' },
    event: /mode "wrong" is none of/,
    cause: 'InvalidArgument',
    sentence: /mode "wrong" is none of/,
    mend: async () => {
      await bed.kube.delete(classes, { name: 'parameter-wrong' });
      await createClass('parameter-wrong', { mode: 'safe' });
    },
    isSeen: true,
  },
  'driver-full': {
    parameters: { mode: 'full' },
    event: /no space left in the pool/,
    cause: 'ResourceExhausted',
    sentence: /no space left in the pool/,
    mend: () => Promise.resolve(mended.add('full')),
  },
  'driver-slow': {
    parameters: { mode: 'slow' },
    event: /DeadlineExceeded/,
    cause: 'DeadlineExceeded',
    sentence: /DeadlineExceeded/,
    mend: () => Promise.resolve(mended.add('slow')),
  },
  'pv-refused': {
    event: /volumes of this class are not allowed/,
    cause: 'Forbidden',
    sentence: /volumes of this class are not allowed/,
    mend: allowVolumes,
  },
};

/** What tells that three calls in a row have ended at --timeout. */
const DRIVER_SLOW: Told = {
  event: /raise --timeout \(it is 1s\)/,
  cause: 'DriverSlow',
  sentence: /DeadlineExceeded/,
};

/** Answers CreateVolume as the class asks for. */
function answer({ method, request, signal }: DriverCall): unknown {
  if (method !== 'CreateVolume') return undefined;
  const { parameters } = request as unknown as { parameters: { readonly mode?: string } };
  const { mode = '' } = parameters;
  if (mended.has(mode)) return undefined;
  if (mode === 'wrong')
    throw new DriverStatus(Code.InvalidArgument, 'mode "wrong" is none of fast, safe');
  if (mode === 'full') throw new DriverStatus(Code.ResourceExhausted, 'no space left in the pool');
  return mode === 'slow'
    ? new Promise((_, reject) => signal.addEventListener('abort', reject))
    : undefined;
}

// The policies and rights of the cluster of KUBECONFIG are not the test's to change.
const skip = (process.env['KUBEBUILDER_ASSETS'] ?? '') === '' && 'no kube-apiserver to start';

describe('faults of sutler all, told where people look, and mended', { skip }, () => {
  const closers = new Closers();
  let dashboard: string;
  let container: SutlerProcess;
  let driver: Program | undefined;
  let serial = 0;
  const lasting = new Map<string, { readonly claim: Claim; readonly told: Told }>();

  const start = async (): Promise<void> => {
    container = await bed.start(
      [
        '--leader-election',
        '--leader-election-lease-duration=4s',
        '--leader-election-renew-deadline=3s',
        '--leader-election-retry-period=1s',
        '--timeout=1s',
        `--dashboard-address=${dashboard}`,
        `--retry-interval-start=${BACK_OFF}`,
        `--retry-interval-max=${BACK_OFF}`,
      ],
      { SUTLER_DASHBOARD_PASSWORD: PASSWORD },
    );
  };
  before(async () => {
    const plane = await realControlPlane(process.env, { binder: true, eventTtl: EVENT_TTL })();
    closers.add('cluster', () => plane.close());
    ({ api } = plane);
    const namespace = await api.namespace();
    const ownKubeconfig = await grantUpstreamRules(plane, namespace);
    const { kubeconfig } = plane;
    const names = { namespace, driverName: DRIVER };
    bed = await openDropInBed({ kubeconfig, ownKubeconfig, ...names, onCall: answer });
    closers.add('bed', async () => assert.deepEqual(await bed.close(), []));
    closers.add('driver', async () => driver?.stop(1_000));
    await api.create('/api/v1/namespaces', { metadata: { name: READABLE } });
    await grantSecrets(READABLE);
    await refuseVolumes();
    dashboard = `127.0.0.1:${await freePort()}`;
    await start();
    const claim = await newClaim();
    await until(() => isBound(claim), 'a claim is Bound');
  });
  after(async () => assert.deepEqual(await closers.close(), []));

  for (const [name, fault] of Object.entries(CLASS_FAULTS))
    it(`${name} is told`, async () => {
      if (name !== 'class-absent') await createClass(name, fault.parameters);
      const claim = await newClaim(name);
      await tells(claim, fault);
      lasting.set(name, { claim, told: fault });
    });

  it('that the driver is slow is told after three calls', async () => {
    const { claim } = lastingOf('driver-slow');
    await tells(claim, DRIVER_SLOW);
    lasting.set('driver-slow', { claim, told: DRIVER_SLOW });
  });

  it('all of them are told after the events have expired', async () => {
    await delay(HOLD_MS);
    for (const { claim, told } of lasting.values()) await tells(claim, told);
  });

  for (const [name, { mend, isSeen }] of Object.entries(CLASS_FAULTS))
    it(`a claim of ${name} is Bound once that is mended`, () =>
      isMended(lastingOf(name).claim, mend, isSeen));

  it('a drain is told', async () => {
    await bed.exec('drain', `--driver-name=${DRIVER}`);
    const claim = await newClaim();
    const told = { event: /drained by .* --undo/, cause: 'Drained', sentence: /drained by/ };
    await tells(claim, told);
    const [, undo = ''] = /run: sutler (.*--undo)$/m.exec(await explain(claim)) ?? [];
    await isMended(claim, () => bed.exec(...undo.split(' ')));
  });

  const KILLS = {
    // Its parent starts it again.
    Redis: async (): Promise<void> => {
      const children = [...(await childrenOf(container.pid ?? 0))];
      const redis = children.find(([name]) => /^(redis|valkey)-server/.test(name));
      assert.ok(redis);
      process.kill(redis[1], 'SIGKILL');
    },
    'the process': async (): Promise<void> => {
      await container.kill();
      await start();
    },
  };
  for (const [name, kill] of Object.entries(KILLS))
    it(`nothing false is told once ${name} was killed`, async () => {
      await kill();
      const claim = await newClaim();
      await until(() => isBound(claim), 'it is Bound');
      // As long as a report of what is pending may be late.
      await delay(5_000);
      const warnings = (await eventsOn(claim)).filter(({ type }) => type === 'Warning');
      assert.deepEqual(warnings, []);
      assert.match(await explain(claim), /cause: +Bound/);
    });

  it('a driver that is dead is told', async () => {
    await bed.driver.close();
    const claim = await newClaim();
    const sentence = /can't be reached.*csi\.sock/;
    await tells(claim, { event: /driver.*csi\.sock/, cause: 'Unreachable', sentence });
    await isMended(claim, () => {
      const { socket } = bed.driver;
      const flags = [`--csi-address=${socket}`, `--data-dir=${socket}.volumes`];
      const args = [SANDBOX, 'sandbox-driver', ...flags, `--driver-name=${DRIVER}`];
      driver = startProgram(process.execPath, args, { cwd: tmpdir() });
      return Promise.resolve();
    });
  });

  it('a driver that is frozen is told', async () => {
    const pid = driver?.pid;
    assert.ok(pid !== undefined);
    process.kill(pid, 'SIGSTOP');
    const claim = await newClaim();
    await tells(claim, {
      event: /DeadlineExceeded|csi\.sock/,
      cause: 'DeadlineExceeded',
      sentence: /DeadlineExceeded/,
    });
    await tells(claim, {
      event: /raise --timeout|csi\.sock/,
      cause: '(?:DriverSlow|Unreachable)',
      sentence: /DeadlineExceeded|csi\.sock/,
    });
    await isMended(claim, () => Promise.resolve(process.kill(pid, 'SIGCONT')));
  });

  /** Waits until event, explain, page and metric tell it. */
  async function tells(claim: Claim, { event, cause, sentence }: Told): Promise<void> {
    const { storageClassName: className = '' } = claim.spec;
    const metric = new RegExp(
      `sutler_claims_pending\\{driver="${DRIVER}",class="${className}",cause="${cause}"\\}`,
    );
    const asks: Readonly<Record<string, () => Promise<boolean>>> = {
      'an event': async () => (await eventsOn(claim)).some(({ message }) => event.test(message)),
      explain: async () => {
        const text = await explain(claim);
        return new RegExp(`cause: +${cause}\n`).test(text) && sentence.test(text);
      },
      'the page': async () => {
        const page = `http://${dashboard}/?class=${className}&name=${claim.metadata.name}`;
        const authorization = `Basic ${Buffer.from(RIGHT.join(':')).toString('base64')}`;
        const text = await (await fetch(page, { headers: { authorization } })).text();
        const plain = text.replaceAll('&quot;', '"').replaceAll('&#39;', "'");
        return plain.includes(nameOf(claim)) && sentence.test(plain);
      },
      'the metric': async () => metric.test(await (await fetch(`${container.url}/metrics`)).text()),
    };
    const told = Object.entries(asks).map(([where, ask]) => {
      const isTold = async (): Promise<boolean> => (await ask()) || delay(50, false);
      return until(isTold, `${where} tells the cause`, WITHIN_MS);
    });
    await Promise.all(told);
  }

  /** Mends, runs the command that explain has named, if any, and waits until the claim is Bound.
   * @param isSeen  sutler sees that it is mended, without that command */
  async function isMended(
    claim: Claim,
    mend: () => Promise<unknown>,
    isSeen = false,
  ): Promise<void> {
    const [, named] = /at once: sutler (.*)$/m.exec(await explain(claim)) ?? [];
    const command = isSeen ? undefined : named;
    await mend();
    if (command !== undefined)
      assert.equal((await bed.exec(...command.split(' '))).out, `${nameOf(claim)}: tried now\n`);
    const withinMs = command === undefined ? WITHIN_MS : BY_COMMAND_MS;
    await until(() => isBound(claim), 'it is Bound', withinMs);
  }

  function lastingOf(name: string): { readonly claim: Claim; readonly told: Told } {
    const found = lasting.get(name);
    assert.ok(found);
    return found;
  }

  async function eventsOn({ metadata: { uid } }: Claim): Promise<readonly Event[]> {
    const { items } = await bed.kube.list<Event>(eventsOf, { namespace: bed.namespace });
    return items.filter((each) => each.involvedObject.uid === uid);
  }

  const nameOf = ({ metadata: { name } }: Claim): string => `${bed.namespace}/${name}`;
  const explain = async (claim: Claim): Promise<string> => {
    const { out, err } = await bed.exec('explain', nameOf(claim));
    return out + err;
  };
  const newClaim = (className?: string): Promise<Claim> =>
    bed.createClaim(`claim-${(serial += 1)}`, {}, className);
  const isBound = ({ metadata: { name } }: Claim): Promise<boolean> => bed.isBound(name);
});

const BINDING = `${POLICIES}/validatingadmissionpolicybindings`;

/** Has the API server refuse the PersistentVolumes of the class pv-refused, and waits until it
 * does. */
async function refuseVolumes(): Promise<void> {
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
          expression: "object.spec.storageClassName != 'pv-refused'",
          message: 'volumes of this class are not allowed',
        },
      ],
    },
  });
  await api.create(BINDING, {
    metadata: { name },
    spec: { policyName: name, validationActions: ['Deny'] },
  });
  await until(() => areVolumesRefused(), 'the policy is in force');
}

/** The same, undone. */
async function allowVolumes(): Promise<void> {
  await api.call('DELETE', `${BINDING}/no-volumes`);
  await until(async () => !(await areVolumesRefused()), 'the policy is no longer in force');
}

async function areVolumesRefused(): Promise<boolean> {
  const volume: Fields = {
    apiVersion: 'v1',
    kind: 'PersistentVolume',
    metadata: { name: 'probe' },
    spec: {
      storageClassName: 'pv-refused',
      capacity: { storage: '1Mi' },
      accessModes: ['ReadWriteOnce'],
      hostPath: { path: '/none' },
    },
  };
  const path = '/api/v1/persistentvolumes?dryRun=All';
  return (await api.call('POST', path, { body: volume })).text.includes('not allowed');
}
