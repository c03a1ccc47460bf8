import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Code } from '#src/csi/status.ts';
import type { Claim, Class, Event } from '#src/kube/objects.ts';
import { claims, classes, events as eventsOf, secrets } from '#src/kube/resources.ts';
import { DriverStatus } from '../../sandbox/driver/driver-status.ts';
import type { DriverCall } from '../../sandbox/driver/server.ts';
import { Connection, type Fields } from '../conformance/connection.ts';
import {
  type FaultPlace,
  grantSecrets,
  openApart,
  openDropIn,
  showPage,
} from '../harness/fault-places.ts';
import { DRIVER } from '../harness/process-bed.ts';
import { type Program, startProgram } from '../harness/program.ts';
import { realControlPlane } from '../harness/real-control-plane.ts';
import { until } from '../harness/until.ts';

/* Faults on a real control plane, of ingest, jobs and dashboard apart with the rights of k8s/, and
 * of `sutler all` with those of external-provisioner: for each, how many seconds after the claim
 * was created an event, `sutler explain`, the first page of the dashboard and a metric name its
 * cause; and after how many its claim is Bound once it is mended, by itself or by the command that
 * explain names. The tables are printed at the end. FAULTS_HOLD_SECONDS (default 150, with events
 * that expire after a minute) is how long the faults then last before all four are read again;
 * FAULTS_EVENT_TTL is another time after which they expire. */

const HOLD_SECONDS = Number(process.env['FAULTS_HOLD_SECONDS'] ?? 150);
const EVENT_TTL = process.env['FAULTS_EVENT_TTL'] ?? '1m';
const WITHIN_MS = 30_000;
/** Within which a claim is Bound by the command that explain names. The back-off is longer. */
const BY_COMMAND_MS = 5_000;
/** What waits by back-off is not tried again by itself while the test mends it. */
const BACK_OFF = EVENT_TTL === '1m' ? '20s' : '5m';
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

/** A fault of one claim: the fields of its class, what has to be told, and what mends it. */
interface ClassFault extends Told {
  readonly parameters?: Readonly<Record<string, string>>;
  readonly mend: (at: Mending) => Promise<unknown>;
  /** sutler sees its end, also where explain names a command for that. */
  readonly isSeen?: true;
}

/** A fault that lasts for a while. */
interface Lasting {
  readonly claim: Claim;
  /** When it was created. */
  readonly startMs: number;
  readonly told: Told;
}

interface Mending {
  readonly place: FaultPlace;
  readonly api: Connection;
  /** The modes that the driver refuses no more. */
  readonly mended: Set<string>;
}

const secretIn = (namespace: string): Readonly<Record<string, string>> => ({
  'csi.storage.k8s.io/provisioner-secret-name': 'credentials',
  'csi.storage.k8s.io/provisioner-secret-namespace': namespace,
});

const createSecret = ({ kube }: FaultPlace, namespace: string): Promise<unknown> =>
  kube.create(secrets, namespace, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'credentials', namespace },
    data: { key: 'dmFsdWU=' },
  });

const createClass = (
  { kube }: FaultPlace,
  name: string,
  parameters: Readonly<Record<string, string>> = {},
): Promise<unknown> =>
  kube.create<Class>(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name },
    provisioner: DRIVER,
    parameters,
  });

const CLASS_FAULTS: Readonly<Record<string, ClassFault>> = {
  'secret-absent': {
    parameters: secretIn(READABLE),
    event: /secrets "credentials" not found/,
    cause: 'Secret',
    sentence: /secrets "credentials" not found/,
    mend: ({ place }) => createSecret(place, READABLE),
  },
  'secret-forbidden': {
    parameters: secretIn('default'),
    event: /secrets "credentials" is forbidden/,
    cause: 'Secret',
    sentence: /forbidden/,
    mend: async ({ place, api }) => {
      await createSecret(place, 'default');
      await grantSecrets(api, 'default', place.reader);
    },
  },
  'class-absent': {
    // kube-controller-manager tells it.
    event: /storageclass\.storage\.k8s\.io "class-absent" not found/,
    cause: 'ClassNotFound',
    sentence: /StorageClass "class-absent" does not exist/,
    mend: ({ place }) => createClass(place, 'class-absent'),
  },
  'parameter-wrong': {
    parameters: { mode: 'wrong' },
    event: /mode "wrong" is none of/,
    cause: 'InvalidArgument',
    sentence: /mode "wrong" is none of/,
    mend: async ({ place }) => {
      await place.kube.delete(classes, { name: 'parameter-wrong' });
      await createClass(place, 'parameter-wrong', { mode: 'safe' });
    },
    isSeen: true,
  },
  'driver-full': {
    parameters: { mode: 'full' },
    event: /no space left in the pool/,
    cause: 'ResourceExhausted',
    sentence: /no space left in the pool/,
    mend: ({ mended }) => Promise.resolve(mended.add('full')),
  },
  'driver-slow': {
    parameters: { mode: 'slow' },
    event: /DeadlineExceeded/,
    cause: 'DeadlineExceeded',
    sentence: /DeadlineExceeded/,
    mend: ({ mended }) => Promise.resolve(mended.add('slow')),
  },
  'pv-refused': {
    event: /volumes of this class are not allowed/,
    cause: 'Forbidden',
    sentence: /volumes of this class are not allowed/,
    mend: ({ api }) => allowVolumes(api),
  },
};

const REDIS_AWAY = /Redis.*127\.0\.0\.1:\d+/;

/** What tells that three calls in a row have ended at --timeout. */
const DRIVER_SLOW: Told = {
  event: /raise --timeout \(it is 1s\)/,
  cause: 'DriverSlow',
  sentence: /DeadlineExceeded/,
};

/** Answers CreateVolume as the class asks for. */
function answer({ method, request, signal }: DriverCall, mended: ReadonlySet<string>): unknown {
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

const FORMS = { 'ingest and jobs': openApart, 'sutler all': openDropIn };

for (const [form, openPlace] of Object.entries(FORMS))
  describe(`faults of ${form}, told where people look, and mended`, { skip }, () => {
    const mended = new Set<string>();
    let place: FaultPlace;
    let api: Connection;
    let driver: Program | undefined;
    let serial = 0;
    const rows = new Map<string, string[]>();
    const lasting = new Map<string, Lasting>();

    before(async () => {
      const open = realControlPlane(process.env, { binder: true, eventTtl: EVENT_TTL });
      const plane = await open();
      api = new Connection(plane);
      place = await openPlace({
        plane,
        api,
        readable: READABLE,
        onCall: (call) => answer(call, mended),
        flags: [`--retry-interval-start=${BACK_OFF}`, `--retry-interval-max=${BACK_OFF}`],
      });
      await refuseVolumes(api);
      await isWorking();
    });
    after(async () => {
      for (const [name, cells] of rows)
        process.stdout.write(`# ${form}: ${name.padEnd(30)} ${cells.join('  ')}\n`);
      await driver?.stop(1_000);
      await api.close();
      await place.close();
    });

    for (const [name, fault] of Object.entries(CLASS_FAULTS))
      it(`${name} is told`, async () => {
        if (name !== 'class-absent') await createClass(place, name, fault.parameters);
        const claim = await newClaim(name);
        const startMs = Date.now();
        await measure(name, claim, fault, startMs);
        lasting.set(name, { claim, startMs, told: fault });
      });

    it('that the driver is slow is told after three calls', async () => {
      const { claim, startMs } = lastingOf('driver-slow');
      await measure('driver-slow, three calls', claim, DRIVER_SLOW, startMs);
      lasting.set('driver-slow', { claim, startMs, told: DRIVER_SLOW });
    });

    it('all of them are told after the events have expired', async () => {
      await delay(HOLD_SECONDS * 1_000);
      for (const [name, { claim, told }] of lasting)
        await measure(`${name} after ${HOLD_SECONDS} s`, claim, told);
    });

    for (const [name, { mend, isSeen }] of Object.entries(CLASS_FAULTS))
      it(`a claim of ${name} is Bound once that is mended`, () =>
        isMended(name, lastingOf(name).claim, () => mend({ place, api, mended }), isSeen));

    it('a drain is told', async () => {
      await place.operate('drain', `--driver-name=${DRIVER}`);
      const claim = await newClaim();
      await measure('drained', claim, {
        event: /drained by .* --undo/,
        cause: 'Drained',
        sentence: /drained by/,
      });
      const [, undo = ''] = /run: sutler (.*--undo)$/m.exec(await explain(claim)) ?? [];
      await isMended('drained', claim, () => operate(undo));
    });

    const OWN: Readonly<Record<string, Told>> = {
      'no worker': {
        event: /no jobs process works for driver .*; see \/readyz of jobs/,
        cause: 'NoWorker',
        sentence: /no jobs process works/,
      },
      'gateway away': {
        event: /gateway.*gateway\.sock/,
        cause: 'Unreachable',
        sentence: /can't be reached.*gateway/,
      },
    };
    for (const [name, told] of Object.entries(OWN))
      it(`${name} is told`, { skip: openPlace === openDropIn && 'it is one process' }, async () => {
        const { begin, end } = faultOf(name);
        await begin();
        const claim = await newClaim();
        await measure(name, claim, told);
        await isMended(name, claim, end);
      });

    it(
      'a Redis that is away is told',
      { skip: openPlace === openDropIn && 'see below' },
      async () => {
        const { begin, end } = faultOf('Redis away');
        await begin();
        const claim = await newClaim();
        await tells('Redis away', Date.now(), {
          kubectl: () => hasEvent(claim, /provisioning waits for Redis/),
          explain: async () => REDIS_AWAY.test(await explain(claim)),
          page: async () => REDIS_AWAY.test(await showPage(place, '/')),
          metric: async () => /sutler_check_failed\{check="redis"\} 1/.test(await place.metrics()),
        });
        await isMended('Redis away', claim, end);
      },
    );

    for (const name of ['Redis killed', 'process killed'])
      it(
        `nothing false is told once ${name}`,
        { skip: openPlace === openApart && 'of sutler all alone' },
        async () => {
          const { begin, end } = faultOf(name);
          await begin();
          const claim = await newClaim();
          const startMs = Date.now();
          await end();
          await until(() => isBound(claim), 'it is Bound');
          addCell(name, `Bound ${secondsSince(startMs)}`);
          await delay(Math.max(0, startMs + 5_000 - Date.now()));
          assert.deepEqual(await warningsOf(claim), []);
          assert.match(await explain(claim), /cause: +Bound/);
        },
      );

    it('a driver that is dead is told', async () => {
      await place.driver.close();
      const claim = await newClaim();
      await measure('driver dead', claim, {
        event: /driver.*csi\.sock/,
        cause: 'Unreachable',
        sentence: /can't be reached.*csi\.sock/,
      });
      await isMended('driver dead', claim, async () => {
        driver = startProgram(
          process.execPath,
          [
            SANDBOX,
            'sandbox-driver',
            `--csi-address=${place.driver.socket}`,
            `--data-dir=${place.driver.socket}.volumes`,
            `--driver-name=${DRIVER}`,
          ],
          { cwd: tmpdir(), keptOutput: 4_000 },
        );
        return Promise.resolve();
      });
    });

    it('a driver that is frozen is told', async () => {
      const pid = driver?.pid;
      assert.ok(pid !== undefined);
      process.kill(pid, 'SIGSTOP');
      const claim = await newClaim();
      const startMs = Date.now();
      await measure('driver frozen', claim, {
        event: /DeadlineExceeded|csi\.sock/,
        cause: 'DeadlineExceeded',
        sentence: /DeadlineExceeded/,
      });
      await measure(
        'driver frozen, three calls',
        claim,
        {
          event: /raise --timeout|csi\.sock/,
          cause: '(?:DriverSlow|Unreachable)',
          sentence: /DeadlineExceeded|csi\.sock/,
        },
        startMs,
      );
      await isMended('driver frozen', claim, () => Promise.resolve(process.kill(pid, 'SIGCONT')));
    });

    /** Waits until event, explain, page and metric tell it.
     * @param startMs  when the claim was created; absent: now */
    function measure(name: string, claim: Claim, told: Told, startMs = Date.now()): Promise<void> {
      const { cause, sentence } = told;
      const { storageClassName: className = '' } = claim.spec;
      const metric = new RegExp(
        `sutler_claims_pending\\{driver="${DRIVER}",class="${className}",cause="${cause}"\\}`,
      );
      return tells(name, startMs, {
        kubectl: () => hasEvent(claim, told.event),
        explain: async () => {
          const text = await explain(claim);
          return new RegExp(`cause: +${cause}\n`).test(text) && sentence.test(text);
        },
        page: async () => {
          const text = await showPage(place, `/?class=${className}&name=${claim.metadata.name}`);
          return (
            text.includes(nameOf(claim)) &&
            sentence.test(text.replaceAll('&quot;', '"').replaceAll('&#39;', "'"))
          );
        },
        metric: async () => metric.test(await place.metrics()),
      });
    }

    /** Waits until each of them is true, and writes down after how many seconds. */
    async function tells(
      name: string,
      startMs: number,
      asks: Readonly<Record<string, () => Promise<boolean>>>,
    ): Promise<void> {
      const told = Object.entries(asks).map(async ([where, ask]) => {
        const isTold = async (): Promise<boolean> => (await ask()) || delay(50, false);
        await until(isTold, `${where} tells the cause`, WITHIN_MS);
        return `${where} ${secondsSince(startMs)}`;
      });
      const settled = await Promise.allSettled(told);
      const failed = settled.flatMap((each) =>
        each.status === 'rejected' ? [(each.reason as Error).message] : [],
      );
      assert.deepEqual(failed, []);
      for (const each of settled) if (each.status === 'fulfilled') addCell(name, each.value);
    }

    /** Mends, runs the command that explain has named, if any, and waits until the claim is Bound.
     * @param isSeen  sutler sees that it is mended, without that command */
    async function isMended(
      name: string,
      claim: Claim,
      mend: () => Promise<unknown>,
      isSeen = false,
    ): Promise<void> {
      const [, named] = /at once: sutler (.*)$/m.exec(await explain(claim)) ?? [];
      const command = isSeen ? undefined : named;
      await mend();
      const startMs = Date.now();
      if (command !== undefined)
        assert.equal(await operate(command), `${nameOf(claim)}: tried now\n`);
      const withinMs = command === undefined ? WITHIN_MS : BY_COMMAND_MS;
      await until(() => isBound(claim), 'it is Bound', withinMs);
      const how = command === undefined ? 'by itself' : `by sutler ${command}`;
      addCell(name, `mended to Bound ${secondsSince(startMs)} ${how}`);
    }

    function addCell(name: string, cell: string): void {
      rows.set(name, [...(rows.get(name) ?? []), cell]);
    }

    function lastingOf(name: string): Lasting {
      const found = lasting.get(name);
      assert.ok(found);
      return found;
    }

    function faultOf(name: string): FaultPlace['faults'][string] {
      const found = place.faults[name];
      assert.ok(found);
      return found;
    }

    async function eventsOn({ metadata: { uid } }: Claim): Promise<readonly Event[]> {
      const { namespace } = place;
      const { items } = await place.kube.list<Event>(eventsOf, { namespace });
      return items.filter((each) => each.involvedObject.uid === uid);
    }

    const hasEvent = async (claim: Claim, message: RegExp): Promise<boolean> =>
      (await eventsOn(claim)).some((each) => message.test(each.message));

    const warningsOf = async (claim: Claim): Promise<readonly string[]> =>
      (await eventsOn(claim)).filter(({ type }) => type === 'Warning').map((each) => each.message);

    const nameOf = ({ metadata: { name } }: Claim): string => `${place.namespace}/${name}`;

    const operate = (text: string): Promise<string> => {
      const [command = '', ...args] = text.split(' ');
      return place.operate(command, ...args);
    };

    const explain = (claim: Claim): Promise<string> => place.operate('explain', nameOf(claim));

    function newClaim(className = 'sample'): Promise<Claim> {
      const { kube, namespace } = place;
      return kube.create<Claim>(claims, namespace, {
        apiVersion: 'v1',
        kind: 'PersistentVolumeClaim',
        metadata: { name: `claim-${(serial += 1)}`, namespace },
        spec: {
          storageClassName: className,
          accessModes: ['ReadWriteOnce'],
          resources: { requests: { storage: '1Mi' } },
        },
      });
    }

    async function isBound({ metadata: { name } }: Claim): Promise<boolean> {
      const { kube, namespace } = place;
      return (await kube.get<Claim>(claims, { namespace, name }))?.status?.phase === 'Bound';
    }

    async function isWorking(): Promise<void> {
      const claim = await newClaim();
      await until(() => isBound(claim), 'a claim is Bound');
    }
  });

/** For the table. */
function secondsSince(startMs: number): string {
  return ((Date.now() - startMs) / 1_000).toFixed(1);
}

const BINDING = `${POLICIES}/validatingadmissionpolicybindings`;

/** Has the API server refuse the PersistentVolumes of the class pv-refused, and waits until it
 * does. */
async function refuseVolumes(api: Connection): Promise<void> {
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
  await until(() => areVolumesRefused(api), 'the policy is in force');
}

/** The same, undone. */
async function allowVolumes(api: Connection): Promise<void> {
  await api.call('DELETE', `${BINDING}/no-volumes`);
  await until(async () => !(await areVolumesRefused(api)), 'the policy is no longer in force');
}

async function areVolumesRefused(api: Connection): Promise<boolean> {
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
