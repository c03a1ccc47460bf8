import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Closers } from '#src/runtime/closers.ts';
import { unique } from '../../conformance/connection.ts';
import type { RealControlPlane } from '../real-control-plane.ts';
import { type Difference, differencesOf } from './differences.ts';
import { Observer } from './observer.ts';
import type { Provisioner, ProvisionerOptions } from './provisioners.ts';
import {
  callsOf,
  eventsOf,
  NO_OBJECTS,
  type Objects,
  objectsOf,
  repeatedCallsOf,
  type ScenarioRecord,
} from './record.ts';
import { isOneOf, Scene, type Stage } from './scene.ts';
import type { Scenario } from './scenario.ts';
import {
  type RecordedCall,
  type RecordedMethod,
  type ScriptedDriverOptions,
  startScriptedDriver,
} from './scripted-driver.ts';
import {
  cleanUp,
  createStageObjects,
  SELECTED_NODE,
  type StageNeeds,
  type StageNode,
} from './stage-objects.ts';

/** What all scenarios of a run share, with both provisioners. */
export interface Setting {
  /** For both provisioners, in upstream's spelling. */
  readonly flags?: readonly string[];
  /** Default: ALL_CAPABILITIES. */
  readonly capabilities?: ScriptedDriverOptions['capabilities'];
  /** As for --volume-name-uuid-length. */
  readonly uuidLength?: number;
  /** Feature gates of kube-apiserver to switch on. */
  readonly serverGates?: readonly string[];
  /** Name of the driver. Default: a new one in each run. */
  readonly driverName?: string;
  /** The driver reports topology. */
  readonly hasTopology?: boolean;
  /** Nodes with a driver of their own, by short name, and their topology; keys have no prefix. */
  readonly nodes?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** The provisioner finds its pod by POD_NAME and NAMESPACE. */
  readonly hasPod?: boolean;
  /** Calls that are not compared, because chance decides which there are. */
  readonly ignoredCalls?: readonly RecordedMethod[];
  /** How many scenarios are played at once. Default: 40. */
  readonly concurrency?: number;
}

const ALL_CAPABILITIES: ScriptedDriverOptions['capabilities'] = [
  'CREATE_DELETE_VOLUME',
  'PUBLISH_UNPUBLISH_VOLUME',
  'CREATE_DELETE_SNAPSHOT',
  'CLONE_VOLUME',
  'MODIFY_VOLUME',
  'GET_CAPACITY',
];

/** For both provisioners: the API server must not limit them, and retries have to happen within the
 * test. */
const FLAGS = [
  '--kube-api-qps=500',
  '--kube-api-burst=1000',
  '--retry-interval-start=500ms',
  '--retry-interval-max=4s',
];
const CONCURRENCY = 40;
/** How long records have to stay unchanged. */
const REST_MS = 2_500;
/** How long to wait until records equal the expected ones. */
const CATCH_UP_MS = 20_000;

export interface RunOptions {
  readonly plane: RealControlPlane;
  readonly setting: Setting;
  readonly scenarios: readonly Scenario[];
  readonly start: (options: ProvisionerOptions) => Promise<Provisioner>;
  /** The records of the run to compare with; this run waits for a while until its own are equal. */
  readonly expected?: ReadonlyMap<string, ScenarioRecord>;
  /** Differences for which this run does not wait. */
  readonly isKnown?: (difference: Difference) => boolean;
  /** Prints the provisioner's output. */
  readonly showsLog?: boolean;
}

/** Runs all scenarios concurrently with one provisioner.
 * @returns the records by name of the scenario */
export async function playAll(options: RunOptions): Promise<ReadonlyMap<string, ScenarioRecord>> {
  const { plane, setting, scenarios } = options;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-diff-'));
  const stage = stageOf(options);
  const scenes = scenarios.map((scenario, index) => new Scene(scenario, stage, index));
  const closers = new Closers();
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  closers.add('observer', () => stage.observer.close());
  try {
    const sockets = await startDrivers(setting, { folder, stage, scenes, closers });
    const needs: StageNeeds = {
      hasTopology: setting.hasTopology ?? false,
      hasPod: setting.hasPod ?? false,
      nodes: nodesOf(setting, stage.token),
    };
    closers.add('objects', () => cleanUp(scenes, stage, needs));
    const env = await createStageObjects(stage, needs);
    const provisioner = await options.start({
      kubeconfig: plane.kubeconfig,
      ...sockets,
      env,
      folder,
      namespace: stage.markerNamespace,
      flags: [...FLAGS, ...(setting.flags ?? [])],
    });
    closers.add('provisioner', () => provisioner.stop());
    const warmUp = { name: 'warm-up', title: '', ends: () => Promise.resolve() };
    await new Scene(warmUp, stage, 999).marker().catch((cause: unknown) => {
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

function stageOf({
  plane: { api },
  setting,
}: RunOptions): Stage & { readonly calls: RecordedCall[] } {
  const token = unique('r').replace('-', '');
  const [firstNode] = nodesOf(setting, token);
  return {
    api,
    observer: new Observer(api),
    driverName: setting.driverName ?? `${token}.csi.sutler.dev`,
    token,
    uuidLength: setting.uuidLength ?? -1,
    markers: new Set(),
    calls: [],
    markerClass: `marker-${token}`,
    markerNamespace: `marker-${token}`,
    markerAnnotations: firstNode === undefined ? {} : { [SELECTED_NODE]: firstNode.name },
  };
}

function nodesOf({ nodes = {} }: Setting, token: string): readonly StageNode[] {
  return Object.entries(nodes).map(([short, topology]) => ({
    name: `${short}-${token}`,
    topology,
  }));
}

interface DriverPlaces {
  readonly folder: string;
  readonly stage: Stage & { readonly calls: RecordedCall[] };
  readonly scenes: readonly Scene[];
  readonly closers: Closers;
}

/** Starts one driver, or one for each node. */
async function startDrivers(
  setting: Setting,
  { folder, stage, scenes, closers }: DriverPlaces,
): Promise<Pick<ProvisionerOptions, 'socket' | 'nodes'>> {
  const start = async (place: string, node?: ScriptedDriverOptions['node']): Promise<string> => {
    const driver = await startScriptedDriver({
      socket: join(folder, `${place}.sock`),
      dataDir: join(folder, `volumes-${place}`),
      name: stage.driverName,
      capabilities: setting.capabilities ?? ALL_CAPABILITIES,
      hasTopology: setting.hasTopology ?? false,
      ...(node === undefined ? {} : { node }),
      calls: stage.calls,
      sceneOf: (about) =>
        isOneOf(about, stage.markers, stage.uuidLength)
          ? 'none'
          : scenes.find((candidate) => candidate.isAbout(about)),
    });
    closers.add(`driver ${place}`, () => driver.close());
    return driver.socket;
  };
  if (setting.nodes === undefined) return { socket: await start('csi') };
  const nodes = [];
  for (const node of nodesOf(setting, stage.token))
    nodes.push({ name: node.name, socket: await start(node.name, node) });
  return { socket: nodes[0]?.socket ?? '', nodes };
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
  await Promise.all(Array.from({ length: options.setting.concurrency ?? CONCURRENCY }, worker));
  const records = new Map<string, ScenarioRecord>();
  const finish = async (scene: Scene): Promise<void> => {
    const before = played.get(scene) ?? { provisioned: NO_OBJECTS, trouble: 'not played' };
    const now = (): ScenarioRecord => ({
      ...before,
      end: objectsOf(scene),
      calls: callsOf(scene, options.setting.ignoredCalls),
      events: eventsOf(scene),
      notes: scene.notes,
      repeated: repeatedCallsOf(scene),
    });
    const isExpected = matcherFor(scene, options);
    if (isExpected !== undefined) await waitUntilStable(scene, now, isExpected);
    // Wait again for late calls and events that should not occur.
    records.set(scene.scenario.name, await waitUntilStable(scene, now));
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
    await createClassAndClaim(scene);
    await scenario.ends(scene);
    const expected = options.expected?.get(scenario.name)?.provisioned;
    const isExpected = expected && matcher(scene, { provisioned: expected }, options);
    const readRecord = () => ({ provisioned: objectsOf(scene) });
    ({ provisioned } = await waitUntilStable(scene, readRecord, isExpected));
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

async function createClassAndClaim(scene: Scene): Promise<void> {
  const { class: cls = {}, claim = {} } = scene.scenario;
  if (cls !== null)
    await scene.makeClass(scene.className, typeof cls === 'function' ? cls(scene) : cls);
  if (claim === null) return;
  const { spec, ...metadata } = typeof claim === 'function' ? claim(scene) : claim;
  await scene.makeClaim('data', spec, metadata);
}

type Matcher = (record: Partial<ScenarioRecord>) => boolean;

function matcherFor(scene: Scene, options: RunOptions): Matcher | undefined {
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

/** Reads the record until it no longer changes; with an expectation, until that is met or a time
 * has passed. */
async function waitUntilStable<T extends Partial<ScenarioRecord>>(
  scene: Scene,
  readRecord: () => T,
  isExpected?: Matcher,
): Promise<T> {
  const deadlineMs = Date.now() + CATCH_UP_MS;
  await scene.stage.observer.next();
  for (let last = readRecord(), sinceMs = Date.now(); ;) {
    await scene.stage.observer.next();
    const now = readRecord();
    if (isExpected?.(now) === true) return now;
    if (JSON.stringify(now) !== JSON.stringify(last)) sinceMs = Date.now();
    last = now;
    const mayCatchUp = isExpected !== undefined && Date.now() < deadlineMs;
    if (!mayCatchUp && (Date.now() - sinceMs > REST_MS || Date.now() > deadlineMs)) return now;
  }
}
