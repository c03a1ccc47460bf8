import {
  create,
  type DescMessage,
  fromBinary,
  type Message,
  type MessageInitShape,
  toBinary,
} from '@bufbuild/protobuf';
import {
  type Metadata,
  type sendUnaryData,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
} from '@grpc/grpc-js';
import { methodPath } from '#src/csi/methods.ts';
import { Code } from '#src/csi/status.ts';
import { type Clock, systemClock, timerMs } from '#src/runtime/clock.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import { claimSocketPath } from '#src/runtime/socket-file.ts';
import { DriverStatus } from './driver-status.ts';
import { type Pool, Pools } from './pools.ts';
import { driverOperations, type Operation } from './services.ts';
import { type StoredVolume, VolumeStore } from './volume-store.ts';

/** One call as the driver sees it. */
export interface DriverCall {
  /** "CreateVolume". */
  readonly method: string;
  readonly request: Message;
  readonly metadata: Metadata;
  /** 1 for the first call of this method. */
  readonly count: number;
  /** Aborts when the caller gave up. */
  readonly signal: AbortSignal;
  /** Executes the call and returns its answer, for a hook that then withholds or changes it. */
  readonly proceed: () => Promise<MessageInitShape<DescMessage>>;
}

export interface SampleDriverOptions {
  readonly socket: string;
  readonly dataDir: string;
  /** Default: sample.csi.sutler.dev. */
  readonly name?: string;
  readonly nodeId?: string;
  /** Minimum time of each creation, deletion and change. */
  readonly delayMs?: number;
  /** Names of mutable parameters; others are refused. Default: all are accepted. */
  readonly mutableParameters?: readonly string[];
  /** Topology segments of all volumes and of the node; adds VOLUME_ACCESSIBILITY_CONSTRAINTS.
   * Default: no topology. */
  readonly topology?: Readonly<Record<string, string>>;
  /** Size of the pool; default 1 TiB. */
  readonly capacityBytes?: bigint;
  /** A pool for each node, in place of the one pool with `topology` and `capacityBytes`. */
  readonly pools?: readonly Pool[];
  /** Runs before each call. A result other than undefined is the answer, a thrown DriverStatus the
   * status; a promise that never settles lets the call hang. */
  readonly onCall?: (call: DriverCall) => unknown;
  /** Keep all calls in `calls`. Off by default, because requests contain secrets. */
  readonly record?: boolean;
  readonly clock?: Clock;
  /** Storage that replicas of one driver share, in place of `dataDir`. Each replica still has its
   * own locks. */
  readonly store?: VolumeStore;
}

export interface SampleDriver {
  readonly socket: string;
  /** Calls so far, by method name. */
  readonly counts: ReadonlyMap<string, number>;
  /** Calls in order, if they are recorded. */
  readonly calls: readonly DriverCall[];
  volumes(): readonly StoredVolume[];
  /** Waits at most `graceMs` (default: 0) for calls under way, then closes the socket. */
  close(graceMs?: number): Promise<void>;
}

/** Starts the sample driver: a real csi.v1 server over gRPC on a unix socket.
 * @throws UsageError if another process listens on the socket */
export async function startSampleDriver(options: SampleDriverOptions): Promise<SampleDriver> {
  await claimSocketPath(`--csi-address ${options.socket}`, options.socket);
  const store = options.store ?? new VolumeStore(options.dataDir);
  const { nodeId = 'sample-node', capacityBytes = 1024n ** 4n, topology } = options;
  const pools = new Pools(
    options.pools ?? [{ name: '', segments: topology, capacityBytes }],
    store,
  );
  const operations = driverOperations({
    name: options.name ?? 'sample.csi.sutler.dev',
    nodeId,
    pools,
    nodeSegments: pools.segmentsOf(nodeId) ?? topology,
    delayMs: options.delayMs ?? 0,
    mutableParameters: options.mutableParameters,
    clock: options.clock ?? systemClock,
    store,
  });
  const counts = new Map<string, number>();
  const calls: DriverCall[] = [];
  const server = new Server({
    'grpc.max_receive_message_length': -1,
    'grpc.max_send_message_length': -1,
    'grpc.enable_channelz': 0,
  });
  for (const operation of operations) {
    register(server, operation, async (unary) => {
      const count = (counts.get(operation.method.name) ?? 0) + 1;
      counts.set(operation.method.name, count);
      const call = describe(operation, unary, count);
      if (options.record === true) calls.push(call);
      return ((await options.onCall?.(call)) ??
        (await call.proceed())) as MessageInitShape<DescMessage>;
    });
  }
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(`unix:${options.socket}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    );
  });
  return {
    socket: options.socket,
    counts,
    calls,
    volumes: () => store.list(),
    close: (graceMs = 0) => shutDown(server, graceMs),
  };
}

function register(
  server: Server,
  { method }: Operation,
  answer: (
    call: ServerUnaryCall<Message, MessageInitShape<DescMessage>>,
  ) => Promise<MessageInitShape<DescMessage>>,
): void {
  server.register(
    methodPath(method),
    (
      call: ServerUnaryCall<Message, MessageInitShape<DescMessage>>,
      callback: sendUnaryData<MessageInitShape<DescMessage>>,
    ) => {
      answer(call).then(
        (value) => callback(null, value),
        (error: unknown) => callback(statusOf(error)),
      );
    },
    (value: MessageInitShape<DescMessage>) =>
      Buffer.from(toBinary(method.output, create(method.output, value))),
    (bytes: Buffer) => fromBinary(method.input, bytes),
    'unary',
  );
}

function describe(
  operation: Operation,
  unary: ServerUnaryCall<Message, MessageInitShape<DescMessage>>,
  count: number,
): DriverCall {
  const gone = new AbortController();
  unary.once('cancelled', () => gone.abort());
  return {
    method: operation.method.name,
    request: unary.request,
    metadata: unary.metadata,
    count,
    signal: gone.signal,
    // register() decoded the request with this operation's method.
    proceed: async () => operation.answer(unary.request as never),
  };
}

function statusOf(error: unknown): { code: number; details: string; metadata?: Metadata } {
  if (!(error instanceof DriverStatus)) return { code: Code.Internal, details: messageOf(error) };
  return {
    code: error.code,
    details: error.details,
    ...(error.metadata === undefined ? {} : { metadata: error.metadata }),
  };
}

function shutDown(server: Server, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const force = (): void => server.forceShutdown();
    const timer = setTimeout(force, timerMs(graceMs));
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
    if (graceMs === 0) force();
  });
}
