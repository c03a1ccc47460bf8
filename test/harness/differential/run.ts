import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Closers } from '#src/runtime/lifecycle.ts';
import { at, unique, type Connection } from '../../conformance/connection.ts';
import { CLASSES, VOLUMES, paths, storageClass } from '../../conformance/objects.ts';
import type { RealControlPlane } from '../real-control-plane.ts';
import { differencesOf, type Difference } from './differences.ts';
import { Observer } from './observer.ts';
import type { Provisioner, ProvisionerOptions } from './provisioners.ts';
import {
  callsOf,
  eventsOf,
  NO_OBJECTS,
  objectsOf,
  repeatedCallsOf,
  type Objects,
  type ScenarioRecord,
} from './record.ts';
import { isOneOf, Scene, type Stage } from './scene.ts';
import type { Scenario } from './scenario.ts';
import { startScriptedDriver, type ScriptedDriverOptions } from './scripted-driver.ts';

/** What all scenarios of one run have in common, and both provisioners. */
export interface Setting {
  /** Upstream's spelling; both get them. */
  readonly flags?: readonly string[];
  /** Default: ALL_CAPABILITIES. */
  readonly capabilities?: ScriptedDriverOptions['capabilities'];
  /** As in --volume-name-uuid-length. */
  readonly uuidLength?: number;
  /** Feature gates of kube-apiserver to switch on. */
  readonly serverGates?: readonly string[];
  /** A name that the driver must have. Default: one of its own in each run. */
  readonly driverName?: string;
}

export const ALL_CAPABILITIES: ScriptedDriverOptions['capabilities'] = [
  'CREATE_DELETE_VOLUME',
  'PUBLISH_UNPUBLISH_VOLUME',
  'CREATE_DELETE_SNAPSHOT',
  'CLONE_VOLUME',
  'MODIFY_VOLUME',
];

/** Of both. The API server is not to be what is measured, and what is tried again is to be so
 * within the test. */
const FLAGS = [
  '--kube-api-qps=500',
  '--kube-api-burst=1000',
  '--retry-interval-start=500ms',
  '--retry-interval-max=4s',
];
const AT_ONCE = 40;
/** For things to come to rest, or to become as they were in the run to compare with. */
const REST_MS = 2_500;
const CATCH_UP_MS = 20_000;

export interface RunOptions {
  readonly plane: RealControlPlane;
  readonly api: Connection;
  readonly setting: Setting;
  readonly scenarios: readonly Scenario[];
  readonly start: (options: ProvisionerOptions) => Promise<Provisioner>;
  /** What there was the first time; waits then until it is so again, for a while. */
  readonly expected?: ReadonlyMap<string, ScenarioRecord>;
  /** Differences that nothing is waited for. */
  readonly isKnown?: (difference: Difference) => boolean;
  /** Prints what the provisioner said. */
  readonly showsLog?: boolean;
}

/** Plays all scenarios at once with one provisioner; records by name. */
export async function playAll(options: RunOptions): Promise<ReadonlyMap<string, ScenarioRecord>> {
  const { plane, api, setting, scenarios } = options;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-diff-'));
  const token = unique('r').replace('-', '');
  const observer = new Observer(api);
  const scenes: Scene[] = [];
  const markers = new Set<string>();
  const uuidLength = setting.uuidLength ?? -1;
  const driver = await startScriptedDriver({
    socket: join(folder, 'csi.sock'),
    dataDir: join(folder, 'volumes'),
    name: setting.driverName ?? `${token}.csi.sutler.dev`,
    capabilities: setting.capabilities ?? ALL_CAPABILITIES,
    sceneOf: (about) =>
      isOneOf(about, markers, uuidLength)
        ? 'nobody'
        : scenes.find((candidate) => candidate.isAbout(about)),
  });
  const stage: Stage = {
    api,
    observer,
    driverName: setting.driverName ?? `${token}.csi.sutler.dev`,
    token,
    uuidLength,
    markers,
    calls: driver.calls,
    markerClass: `marker-${token}`,
    markerNamespace: `marker-${token}`,
  };
  scenes.push(...scenarios.map((scenario, index) => new Scene(scenario, stage, index)));
  const closers = new Closers();
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  closers.add('driver', () => driver.close());
  closers.add('observer', () => observer.close());
  try {
    await makeMarkers(stage);
    closers.add('objects', () => cleanUp(scenes, stage));
    const provisioner = await options.start({
      kubeconfig: plane.kubeconfig,
      socket: join(folder, 'csi.sock'),
      folder,
      namespace: stage.markerNamespace,
      flags: [...FLAGS, ...(setting.flags ?? [])],
    });
    closers.add('provisioner', () => provisioner.stop());
    const warmUp = new Scene(
      { name: 'warm-up', title: '', ends: () => Promise.resolve() },
      stage,
      999,
    );
    await warmUp.marker().catch((cause: unknown) => {
      throw new Error(
        `the first claim was not provisioned:\n${provisioner.output().slice(-4_000)}`,
        { cause },
      );
    });
    if (options.showsLog === true)
      closers.add('log', () => process.stderr.write(provisioner.output()));
    return await playScenes(scenes, options);
  } finally {
    for (const error of await closers.close())
      process.stderr.write(`${error.message}: ${String(error.cause)}\n`);
  }
}

async function playScenes(
  scenes: readonly Scene[],
  options: RunOptions,
): Promise<ReadonlyMap<string, ScenarioRecord>> {
  const played = new Map<Scene, { provisioned: Objects; trouble: string }>();
  const waiting = [...scenes];
  const worker = async (): Promise<void> => {
    for (let scene = waiting.shift(); scene !== undefined; scene = waiting.shift())
      played.set(scene, await play(scene, options));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  const records = new Map<string, ScenarioRecord>();
  const finish = async (scene: Scene): Promise<void> => {
    const before = played.get(scene) ?? { provisioned: NO_OBJECTS, trouble: 'not played' };
    const now = (): ScenarioRecord => ({
      ...before,
      end: objectsOf(scene),
      calls: callsOf(scene),
      events: eventsOf(scene),
      notes: scene.notes,
      repeated: repeatedCallsOf(scene),
    });
    const isExpected = expectedOf(scene, options);
    if (isExpected !== undefined) await atRest(scene, now, isExpected);
    // Once more, for what should not come and comes late.
    records.set(scene.scenario.name, await atRest(scene, now));
  };
  await Promise.all(scenes.map(finish));
  return records;
}

async function play(
  scene: Scene,
  options: RunOptions,
): Promise<{ provisioned: Objects; trouble: string }> {
  const { scenario } = scene;
  let provisioned = NO_OBJECTS;
  try {
    await scene.makeNamespace(scene.namespace);
    await scenario.prepare?.(scene);
    const cls =
      typeof scenario.class === 'function' ? scenario.class(scene) : (scenario.class ?? {});
    if (scenario.class !== null) await scene.makeClass(scene.className, cls);
    const shape =
      typeof scenario.claim === 'function' ? scenario.claim(scene) : (scenario.claim ?? {});
    if (scenario.claim !== null) {
      const { spec, ...metadata } = shape;
      await scene.makeClaim('data', spec, metadata);
    }
    await scenario.ends(scene);
    const expected = options.expected?.get(scenario.name)?.provisioned;
    const look = (): Pick<ScenarioRecord, 'provisioned'> => ({ provisioned: objectsOf(scene) });
    const record = await atRest(
      scene,
      look,
      ...(expected === undefined ? [] : [matcher(scene, { provisioned: expected }, options)]),
    );
    provisioned = record.provisioned;
    if (scenario.afterwards !== undefined) await scenario.afterwards(scene);
    else if (scene.claim()?.status?.phase === 'Bound') await scene.deleteAll();
    return { provisioned, trouble: '' };
  } catch (error) {
    return {
      provisioned,
      trouble: error instanceof Error ? error.message.slice(0, 600) : String(error),
    };
  }
}

type Matcher = (record: Partial<ScenarioRecord>) => boolean;

function expectedOf(scene: Scene, options: RunOptions): Matcher | undefined {
  const expected = options.expected?.get(scene.scenario.name);
  return expected === undefined ? undefined : matcher(scene, expected, options);
}

function matcher(
  scene: Scene,
  expected: Partial<ScenarioRecord>,
  { isKnown }: RunOptions,
): Matcher {
  return (record) =>
    differencesOf(scene.scenario.name, expected as ScenarioRecord, record as ScenarioRecord).every(
      (difference) => isKnown?.(difference) ?? false,
    );
}

/** Looks until two looks at an interval are the same; with an expectation, until that is met, for a
 * while. */
async function atRest<T extends Partial<ScenarioRecord>>(
  scene: Scene,
  look: () => T,
  isExpected?: Matcher,
): Promise<T> {
  const deadlineMs = Date.now() + CATCH_UP_MS;
  await scene.stage.observer.next();
  for (let last = look(), sinceMs = Date.now(); ;) {
    await scene.stage.observer.next();
    const now = look();
    if (isExpected?.(now) === true) return now;
    if (JSON.stringify(now) !== JSON.stringify(last)) sinceMs = Date.now();
    last = now;
    const isPatient = isExpected !== undefined && Date.now() < deadlineMs;
    if (!isPatient && (Date.now() - sinceMs > REST_MS || Date.now() > deadlineMs)) return now;
  }
}

async function makeMarkers({
  api,
  markerNamespace,
  markerClass,
  driverName,
}: Stage): Promise<void> {
  await api.create('/api/v1/namespaces', {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: markerNamespace },
  });
  await api.create(CLASSES, storageClass(markerClass, { fields: { provisioner: driverName } }));
}

/** Takes away claims and volumes, finalizers or not: the next provisioner may have the same
 * driver's name. */
async function cleanUp(
  scenes: readonly Scene[],
  { api, markerNamespace, observer }: Stage,
): Promise<void> {
  const force = async (path: string): Promise<void> => {
    const { body } = await api.call('DELETE', path);
    if (Array.isArray(at(body, 'metadata', 'finalizers')))
      await api.patch('merge', path, { metadata: { finalizers: null } });
  };
  await observer.next();
  for (const scene of scenes) {
    for (const { metadata } of scene.ownClaims())
      await force(`${paths(metadata.namespace ?? '').claims}/${metadata.name}`);
    for (const { metadata } of scene.volumes()) await force(`${VOLUMES}/${metadata.name}`);
    await force(`${CLASSES}/${scene.className}`);
  }
  for (const { metadata, spec } of observer.view.volumes) {
    if (at(spec, 'claimRef', 'namespace') === markerNamespace)
      await force(`${VOLUMES}/${metadata.name}`);
  }
  for (const { metadata } of observer.view.claims) {
    if (metadata.namespace === markerNamespace)
      await force(`${paths(markerNamespace).claims}/${metadata.name}`);
  }
  for (const scene of scenes) {
    await api.call('DELETE', `/api/v1/namespaces/${scene.namespace}`);
  }
}
