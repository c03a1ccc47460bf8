import { type JsonValue, toJson } from '@bufbuild/protobuf';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ControllerServiceCapability_RPC_Type as ControllerCapability,
  type CreateVolumeRequest,
  CreateVolumeRequestSchema,
  type CreateVolumeResponse,
  type DeleteVolumeRequest,
  DeleteVolumeRequestSchema,
  PluginCapability_Service_Type as PluginService,
} from '#src/csi/generated/csi_pb.ts';
import { type Code, Code as codes, type CodeName } from '#src/csi/status.ts';
import { DriverStatus } from '../../../sandbox/driver/driver-status.ts';
import { type SampleDriver, startSampleDriver } from '../../../sandbox/driver/server.ts';
import type { Scene } from './scene.ts';

/** One CreateVolume or DeleteVolume of a scenario. */
export interface ScriptedCall {
  readonly method: 'CreateVolume' | 'DeleteVolume';
  readonly create: CreateVolumeRequest;
  readonly delete: DeleteVolumeRequest;
  /** 1 for the first call of this method about this volume. */
  readonly count: number;
  /** The default answer, which grants the request. */
  readonly usual: object;
}

/** Returns the answer, or undefined for the default one; may throw a DriverStatus. */
export type CallAnswer<Context = Scene> = (call: ScriptedCall, scene: Context) => unknown;

/** A call with its whole request, for the comparison. */
export interface RecordedCall {
  readonly method: string;
  /** Name of the volume to create, handle of the one to delete. */
  readonly about: string;
  readonly request: JsonValue;
}

export interface ScriptedDriver {
  readonly calls: readonly RecordedCall[];
  close(): Promise<void>;
}

export interface ScriptedDriverOptions {
  readonly socket: string;
  readonly dataDir: string;
  readonly name: string;
  readonly capabilities: readonly (keyof typeof ControllerCapability)[];
  /** The scene of a call about that volume, or 'none'; undefined while that is unknown. */
  readonly sceneOf: (about: string) => Scene | 'none' | undefined;
}

/** How long to wait for the scene of a call: a claim's UID is known only once the API server has
 * answered. */
const KNOWN_WITHIN_MS = 5_000;

/** Starts a driver without volumes: it records each request, and answers as the scenario says. */
export async function startScriptedDriver(options: ScriptedDriverOptions): Promise<ScriptedDriver> {
  const calls: RecordedCall[] = [];
  const counts = new Map<string, number>();
  const script = async (
    method: ScriptedCall['method'],
    about: string,
    request: unknown,
  ): Promise<object> => {
    const count = (counts.get(`${method} ${about}`) ?? 0) + 1;
    counts.set(`${method} ${about}`, count);
    const create = request as CreateVolumeRequest;
    const usual = method === 'CreateVolume' ? volumeFor(create) : {};
    const scene = await sceneOf(options, about);
    if (scene === undefined || scene === 'none') return usual;
    const call = { method, create, delete: request as DeleteVolumeRequest, count, usual };
    return ((await scene.scenario.answer?.(call, scene)) as object | undefined) ?? usual;
  };
  const driver: SampleDriver = await startSampleDriver({
    socket: options.socket,
    dataDir: options.dataDir,
    name: options.name,
    onCall: ({ method, request }) => {
      if (method === 'GetPluginCapabilities') {
        return {
          capabilities: [
            { type: { case: 'service', value: { type: PluginService.CONTROLLER_SERVICE } } },
          ],
        };
      }
      if (method === 'ControllerGetCapabilities') {
        return {
          capabilities: options.capabilities.map((name) => ({
            type: { case: 'rpc', value: { type: ControllerCapability[name] } },
          })),
        };
      }
      if (method === 'CreateVolume') {
        const create = request as CreateVolumeRequest;
        calls.push({
          method,
          about: create.name,
          request: toJson(CreateVolumeRequestSchema, create),
        });
        return script(method, create.name, create);
      }
      if (method === 'DeleteVolume') {
        const remove = request as DeleteVolumeRequest;
        calls.push({
          method,
          about: remove.volumeId,
          request: toJson(DeleteVolumeRequestSchema, remove),
        });
        return script(method, remove.volumeId, remove);
      }
      return undefined;
    },
  });
  return { calls, close: () => driver.close() };
}

/** The default answer, with changes to the volume. */
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

export function status(code: keyof typeof Code, details: string): DriverStatus {
  return new DriverStatus(codes[code], details);
}

async function sceneOf(
  options: ScriptedDriverOptions,
  about: string,
): Promise<Scene | 'none' | undefined> {
  const deadlineMs = Date.now() + KNOWN_WITHIN_MS;
  for (;;) {
    const scene = options.sceneOf(about);
    if (scene !== undefined || Date.now() > deadlineMs) return scene;
    await delay(20);
  }
}
