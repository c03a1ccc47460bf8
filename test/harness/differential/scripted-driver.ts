import { type JsonValue, toJson } from '@bufbuild/protobuf';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ControllerServiceCapability_RPC_Type as ControllerCapability,
  type CreateVolumeRequest,
  CreateVolumeRequestSchema,
  type CreateVolumeResponse,
  type DeleteVolumeRequest,
  DeleteVolumeRequestSchema,
  type GetCapacityRequest,
  GetCapacityRequestSchema,
  PluginCapability_Service_Type as PluginService,
} from '#src/csi/generated/csi_pb.ts';
import { type Code, Code as codes, type CodeName } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import {
  type DriverCall,
  type SampleDriver,
  startSampleDriver,
} from '../../../sandbox/driver/server.ts';
import type { Scene } from './scene.ts';

export type RecordedMethod = 'CreateVolume' | 'DeleteVolume' | 'GetCapacity';

/** One call of a scenario. */
export interface ScriptedCall {
  readonly method: RecordedMethod;
  /** The request, under the name that fits the method. */
  readonly create: CreateVolumeRequest;
  readonly delete: DeleteVolumeRequest;
  readonly capacity: GetCapacityRequest;
  /** Topology of the node whose driver was called; undefined for a central driver. */
  readonly node: Readonly<Record<string, string>> | undefined;
  /** 1 for the first call of this method about this volume; 0 for GetCapacity. */
  readonly count: number;
  /** The default answer, which grants the request. */
  readonly usual: object;
}

/** Returns the answer, or undefined for the default one; may throw a DriverStatus. */
export type CallAnswer<Context = Scene> = (call: ScriptedCall, scene: Context) => unknown;

/** A call with its whole request, for the comparison. */
export interface RecordedCall {
  readonly method: string;
  /** Name of the volume to create, handle of the one to delete; parameters and segments of a
   * question for capacity. */
  readonly about: string;
  readonly request: JsonValue;
}

export interface ScriptedDriverOptions {
  readonly socket: string;
  readonly dataDir: string;
  readonly name: string;
  readonly capabilities: readonly (keyof typeof ControllerCapability)[];
  /** Has VOLUME_ACCESSIBILITY_CONSTRAINTS. */
  readonly hasTopology?: boolean;
  /** The node that the driver serves, for a driver on each node. */
  readonly node?: {
    readonly name: string;
    readonly topology: Readonly<Record<string, string>>;
  };
  /** Calls of all drivers of a run. */
  readonly calls: RecordedCall[];
  /** The scene of a call about that volume, or 'none'; undefined while that is unknown. */
  readonly sceneOf: (about: string) => Scene | 'none' | undefined;
}

/** How long to wait for the scene of a call: a claim's UID is known only once the API server has
 * answered. */
const KNOWN_WITHIN_MS = 5_000;

/** Starts a driver without volumes: it records each request, and answers as the scenario says. */
export async function startScriptedDriver(options: ScriptedDriverOptions): Promise<SampleDriver> {
  const { calls, node } = options;
  const counts = new Map<string, number>();
  const script = async (call: Omit<ScriptedCall, 'count'>, about: string): Promise<object> => {
    const count = (counts.get(`${call.method} ${about}`) ?? 0) + 1;
    counts.set(`${call.method} ${about}`, count);
    const scene = await sceneOf(options, call.method, about);
    if (scene === undefined || scene === 'none') return call.usual;
    const answer = scene.scenario.answer?.({ ...call, count }, scene);
    return ((await answer) as object | undefined) ?? call.usual;
  };
  const onCall = ({ method, request }: DriverCall): unknown => {
    if (method === 'GetPluginCapabilities') return pluginCapabilities(options);
    if (method === 'ControllerGetCapabilities') return controllerCapabilities(options);
    if (!isScripted(method)) return undefined;
    const about = aboutOf(method, request);
    calls.push({ method, about, request: jsonOf(method, request) });
    const given = {
      create: request as CreateVolumeRequest,
      delete: request as DeleteVolumeRequest,
      capacity: request as GetCapacityRequest,
    };
    const usual = USUAL[method](given);
    return script({ method, ...given, node: node?.topology, usual }, about);
  };
  return startSampleDriver({
    socket: options.socket,
    dataDir: options.dataDir,
    name: options.name,
    ...(node === undefined ? {} : { nodeId: node.name, topology: node.topology }),
    onCall,
  });
}

type Requests = Pick<ScriptedCall, 'create' | 'delete' | 'capacity'>;

const FREE_BYTES = 1024n ** 4n;

/** The default answers. */
const USUAL: Readonly<Record<RecordedMethod, (requests: Requests) => object>> = {
  CreateVolume: ({ create }) => volumeFor(create),
  DeleteVolume: () => ({}),
  GetCapacity: () => ({ availableCapacity: FREE_BYTES }),
};

function isScripted(method: string): method is RecordedMethod {
  return method in USUAL;
}

function aboutOf(method: RecordedMethod, request: unknown): string {
  if (method === 'CreateVolume') return (request as CreateVolumeRequest).name;
  if (method === 'DeleteVolume') return (request as DeleteVolumeRequest).volumeId;
  const { parameters, accessibleTopology } = request as GetCapacityRequest;
  return capacityQuestion(parameters, accessibleTopology?.segments);
}

/** Begin of keys of nodes that all scenarios share. */
export const SHARED_KEYS = 'topology.nodes.sutler.dev/';

/** What a GetCapacity is about. A scenario's own classes have its name as a parameter. */
function capacityQuestion(
  parameters: Readonly<Record<string, string>>,
  segments: Readonly<Record<string, string>> = {},
): string {
  const { scenario = '', ...others } = parameters;
  const isOwn = Object.keys(segments).every(
    (key) => key.startsWith(`${scenario}/`) || key.startsWith(SHARED_KEYS),
  );
  // No scenario is about its class on the nodes of another one.
  return isOwn ? `${scenario} ${textOf(others)} ${textOf(segments)}` : 'other';
}

function textOf(map: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(map).toSorted());
}

function jsonOf(method: RecordedMethod, request: unknown): JsonValue {
  if (method === 'CreateVolume')
    return toJson(CreateVolumeRequestSchema, request as CreateVolumeRequest);
  return method === 'DeleteVolume'
    ? toJson(DeleteVolumeRequestSchema, request as DeleteVolumeRequest)
    : toJson(GetCapacityRequestSchema, request as GetCapacityRequest);
}

function pluginCapabilities({ hasTopology = false }: ScriptedDriverOptions): object {
  const services = [
    PluginService.CONTROLLER_SERVICE,
    ...(hasTopology ? [PluginService.VOLUME_ACCESSIBILITY_CONSTRAINTS] : []),
  ];
  return { capabilities: services.map((type) => ({ type: { case: 'service', value: { type } } })) };
}

function controllerCapabilities({ capabilities }: ScriptedDriverOptions): object {
  return {
    capabilities: capabilities.map((name) => ({
      type: { case: 'rpc', value: { type: ControllerCapability[name] } },
    })),
  };
}

/** The default answer, with changes to the volume. The volume is accessible in the first preferred
 * part of the cluster. */
export function volumeFor(
  request: CreateVolumeRequest,
  changes: Partial<Record<keyof NonNullable<CreateVolumeResponse['volume']>, unknown>> = {},
) {
  return {
    volume: {
      volumeId: `handle-${request.name}`,
      capacityBytes: request.capacityRange?.requiredBytes ?? 0n,
      volumeContext: { madeBy: 'the driver' },
      contentSource: request.volumeContentSource,
      accessibleTopology: request.accessibilityRequirements?.preferred.slice(0, 1) ?? [],
      ...changes,
    },
  };
}

/** Fails every call of a method with a status; the other method has its default answers. */
export function fails(
  code: CodeName,
  details: string,
  method: ScriptedCall['method'] = 'CreateVolume',
): CallAnswer {
  return (call) => {
    if (call.method === method) throw status(code, details);
  };
}

/** The same, of the first call alone. */
export function failsOnce(
  code: CodeName,
  details: string,
  method: ScriptedCall['method'] = 'CreateVolume',
): CallAnswer {
  return (call) => {
    if (call.method === method && call.count === 1) throw status(code, details);
  };
}

export function status(code: keyof typeof Code, details: string): DriverStatus {
  return new DriverStatus(codes[code], details);
}

async function sceneOf(
  options: ScriptedDriverOptions,
  method: RecordedMethod,
  about: string,
): Promise<Scene | 'none' | undefined> {
  // No object has to be known to tell the scene of a question for capacity.
  if (method === 'GetCapacity') return options.sceneOf(about);
  const deadlineMs = Date.now() + KNOWN_WITHIN_MS;
  for (;;) {
    const scene = options.sceneOf(about);
    if (scene !== undefined || Date.now() > deadlineMs) return scene;
    await delay(20);
  }
}
