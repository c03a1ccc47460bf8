import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { connect as connectSocket, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { CsiClient } from '#src/gateway-client/client.ts';
import { CsiError } from '#src/csi/status.ts';
import { parseAddress } from '#src/runtime/address.ts';
import { silentLog } from '#src/runtime/log.ts';
import { startSampleDriver } from '../../sandbox/driver/server.ts';
import { EMPTY_SETTINGS, emptyCall, ENDLESS_WINDOWS, frame, PREFACE } from './csi-frames.ts';
import { volumeRequest } from './csi-gateway.ts';
import { GatewayProcess } from './gateway-process.ts';
import { seeded } from './seeded.ts';
import { until } from './until.ts';

export interface FuzzOptions {
  readonly folder: { file(name: string): string };
  readonly durationMs: number;
  readonly seed: number;
  /** Connections that send nothing after their SETTINGS and stay open all the time. */
  readonly idleConnections: number;
  /** How much more memory the gateway may hold at last than at first: 1.2 for a fifth more. */
  readonly mostGrowth: number;
}

export interface FuzzReport {
  /** How often each attack was made; at least once, however slow the machine is. */
  readonly attacks: ReadonlyMap<string, number>;
  /** Well-formed calls that succeeded during the attacks. */
  readonly goodCalls: number;
  /** Whether a well-formed call succeeded after the attacks. */
  readonly goodAfterwards: boolean;
  /** Messages of well-formed calls that failed during the attacks. */
  readonly failures: readonly string[];
  /** Well-formed calls that were refused, not forwarded, because of too many other calls. */
  readonly refused: number;
  /** Resident memory in bytes: at rest before, highest seen, at rest afterwards. */
  readonly rss: { readonly before: number; readonly peak: number; readonly after: number };
  /** How the gateway's process ended; '' if it did not. */
  readonly ending: string;
  /** Lines of the gateway's log that show a defect. */
  readonly defects: readonly string[];
}

const CREATE = '/csi.v1.Controller/CreateVolume';
const LIST = '/csi.v1.Controller/ListVolumes';

class Attacker {
  readonly #address: string;
  readonly #random: () => number;
  readonly #open = new Set<{ destroy(): unknown }>();
  readonly #nextAttacks: string[] = [];

  constructor(address: string, seed: number) {
    this.#address = address;
    this.#random = seeded(seed);
  }

  readonly attacks: Readonly<Record<string, () => Promise<unknown>>> = {
    'random bytes': () => this.#send([this.#bytes(this.#upTo(4_000))]),
    'a preface and random bytes': () => this.#send([PREFACE, this.#bytes(this.#upTo(4_000))]),
    'random frames': () =>
      this.#send([
        PREFACE,
        EMPTY_SETTINGS,
        ...Array.from({ length: this.#upTo(30) }, () => this.#frame(this.#upTo(12))),
      ]),
    'half a frame': () => {
      const frame = this.#frame(this.#upTo(12));
      return this.#send([PREFACE, EMPTY_SETTINGS, frame.subarray(0, this.#upTo(frame.length))]);
    },
    'a frame header with a length above the limit': () =>
      this.#send([PREFACE, EMPTY_SETTINGS, Buffer.from([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1])]),
    'a flood of pings and settings': () =>
      this.#send([
        PREFACE,
        EMPTY_SETTINGS,
        ...Array.from({ length: 3_000 }, (_, i) =>
          i % 2 === 0 ? EMPTY_SETTINGS : this.#frame(6, 8),
        ),
      ]),
    'headers that never end': () =>
      this.#send([
        PREFACE,
        EMPTY_SETTINGS,
        this.#frame(1, 16_000, 0),
        ...Array.from({ length: 40 }, () => this.#frame(9, 16_000, 0)),
      ]),
    'huge headers': () => this.#call({ 'x-huge': 'x'.repeat(60_000) }, [Buffer.alloc(5)]),
    'many headers': () =>
      this.#call(Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`x-${i}`, 'v'])), [
        Buffer.alloc(5),
      ]),
    'a content type that is not gRPC': () =>
      this.#call({ 'content-type': 'text/html' }, [Buffer.from('<html>')]),
    'methods other than POST': () => this.#call({ ':method': 'GET' }, []),
    'unknown paths': () =>
      this.#call({ ':path': `/${'x'.repeat(this.#upTo(8_000))}/Y` }, [Buffer.alloc(5)]),
    'a body that is not a message': () => this.#call({}, [this.#bytes(this.#upTo(2_000))]),
    'a message with a wrong length': () => this.#call({}, [Buffer.from([0, 0, 0, 1, 0, 1, 2, 3])]),
    'an uncompressed message marked as compressed': () =>
      this.#call({ 'grpc-encoding': 'gzip' }, [Buffer.from([1, 0, 0, 0, 3, 1, 2, 3])]),
    'bad time limits': () =>
      this.#call({ 'grpc-timeout': '99999999999X', 'sutler-not-after': 'soon' }, [Buffer.alloc(5)]),
    'a body that is too large': () =>
      this.#call(
        {},
        Array.from({ length: 48 }, () => Buffer.alloc(64 * 1024, 7)),
      ),
    'bodies that never end': () =>
      this.#leaveOpen((session) =>
        Array.from({ length: 50 }, () => this.#request(session, {}).write(Buffer.alloc(3))),
      ),
    'many calls without a body': () =>
      this.#leaveOpen((session) => {
        for (let i = 0; i < 1_000; i += 1) this.#request(session, {});
      }),
    'callers that do not read from their socket': () => this.#callWithoutReading(),
    'callers whose window stays empty': () =>
      this.#leaveOpen((session) => {
        session.settings({ initialWindowSize: 0 });
        for (let i = 0; i < 50; i += 1)
          this.#request(session, { ':path': LIST }).end(Buffer.alloc(5));
      }),
    'a flood of resets': () =>
      this.#leaveOpen((session) => {
        for (let i = 0; i < 500; i += 1) {
          const stream = this.#request(session, {});
          stream.end(Buffer.alloc(5));
          stream.close(constants.NGHTTP2_CANCEL);
        }
      }),
  };

  /** Opens connections that send nothing after their SETTINGS. */
  async openIdle(count: number): Promise<void> {
    for (let i = 0; i < count; i += 1) {
      const socket = this.#socket();
      socket.write(Buffer.concat([PREFACE, EMPTY_SETTINGS]));
      socket.resume();
      if (i % 50 === 49) await delay(5);
    }
  }

  /** Makes one attack, at random among those that were made least often.
   * @returns its name */
  async attack(): Promise<string> {
    if (this.#nextAttacks.length === 0) this.#nextAttacks.push(...Object.keys(this.attacks));
    const [name = ''] = this.#nextAttacks.splice(
      Math.floor(this.#random() * this.#nextAttacks.length),
      1,
    );
    await this.attacks[name]?.();
    return name;
  }

  close(): void {
    for (const each of this.#open) each.destroy();
  }

  #upTo(max: number): number {
    return 1 + Math.floor(this.#random() * max);
  }

  #bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => Math.floor(this.#random() * 256)));
  }

  #frame(
    type: number,
    length = this.#upTo(300) - 1,
    flags = Math.floor(this.#random() * 256),
  ): Buffer {
    const stream = type === 1 || type === 9 ? 1 : Math.floor(this.#random() * 8);
    return frame(type, {
      flags,
      stream,
      payload: length > 1_000 ? Buffer.alloc(length, 0x41) : this.#bytes(length),
    });
  }

  #socket(): Socket {
    const address = parseAddress('fuzz', this.#address);
    const socket =
      address.kind === 'unix'
        ? connectSocket(address.path)
        : connectSocket(address.port, address.host);
    socket.on('error', () => undefined);
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    return socket;
  }

  async #send(chunks: readonly Buffer[]): Promise<void> {
    const socket = this.#socket();
    socket.resume();
    socket.write(Buffer.concat(chunks));
    await Promise.race([
      new Promise((resolve) => socket.once('close', resolve)),
      new Promise((resolve) => setTimeout(resolve, 20)),
    ]);
    socket.destroy();
  }

  #session(): ClientHttp2Session {
    const session = connectHttp2('http://localhost', { createConnection: () => this.#socket() });
    session.on('error', () => undefined);
    return session;
  }

  #request(session: ClientHttp2Session, headers: OutgoingHttpHeaders): ClientHttp2Stream {
    const stream = session.request({
      ':method': 'POST',
      ':path': CREATE,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    });
    stream.on('error', () => undefined);
    return stream;
  }

  async #call(headers: OutgoingHttpHeaders, body: readonly Buffer[]): Promise<void> {
    const session = this.#session();
    const stream = this.#request(session, headers);
    stream.resume();
    for (const chunk of body) stream.write(chunk);
    stream.end();
    await Promise.race([
      new Promise((resolve) => stream.once('close', resolve)),
      new Promise((resolve) => setTimeout(resolve, 500)),
    ]);
    session.destroy();
  }

  /** Requests more than fits in the socket's buffer, and does not read it. */
  async #callWithoutReading(): Promise<void> {
    const socket = this.#socket();
    const calls = Array.from({ length: 500 }, (_, i) => emptyCall(2 * i + 1, LIST));
    socket.write(Buffer.concat([PREFACE, ENDLESS_WINDOWS, ...calls]));
    setTimeout(() => socket.destroy(), 2_000).unref();
    await delay(20);
  }

  /** Opens a connection and leaves it open for 2 s, unless the gateway closes it. */
  async #leaveOpen(start: (session: ClientHttp2Session) => unknown): Promise<void> {
    const session = this.#session();
    await Promise.race([
      new Promise((resolve) => session.once('remoteSettings', resolve)),
      new Promise((resolve) => setTimeout(resolve, 500)),
    ]);
    if (session.destroyed) return;
    start(session);
    setTimeout(() => session.destroy(), 2_000).unref();
    await delay(20);
  }
}

/** Starts a gateway in front of the sample driver, attacks it for a while, and reports how many
 * good calls succeeded meanwhile and how much memory it used. */
export async function fuzzGateway(options: FuzzOptions): Promise<FuzzReport> {
  const address = `unix://${options.folder.file('gw.sock')}`;
  const driver = await startSampleDriver({
    socket: options.folder.file('csi.sock'),
    dataDir: options.folder.file('data'),
  });
  const gateway = await GatewayProcess.start([
    `--csi-address=${options.folder.file('csi.sock')}`,
    `--listen=${address}`,
    '--max-message-bytes=1000000',
    '--max-request-bytes=1000000',
  ]);
  const client = new CsiClient({ address: parseAddress('fuzz', address), log: silentLog });
  let goodCalls = 0;
  let refused = 0;
  const failures: string[] = [];
  const good = async (mark = ''): Promise<boolean> => {
    try {
      const { volume } = await client.createVolume(volumeRequest(`good-${goodCalls}${mark}`), {
        timeoutMs: 60_000,
      });
      await client.deleteVolume({ volumeId: volume?.volumeId ?? '' }, { timeoutMs: 60_000 });
      goodCalls += 2;
      return true;
    } catch (error) {
      if (error instanceof CsiError && error.notForwarded) refused += 1;
      else failures.push(error instanceof Error ? error.message : String(error));
      return false;
    }
  };
  const attacker = new Attacker(address, options.seed);
  const attacks = new Map(Object.keys(attacker.attacks).map((name) => [name, 0]));
  try {
    await until(
      () =>
        client.probe({ timeoutMs: 10_000 }).then(
          () => true,
          () => false,
        ),
      'the gateway is ready',
      60_000,
    );
    // Memory is compared with that of a gateway after ordinary work: compiled code, buffers, and
    // what --max-in-flight calls at once leave behind.
    const work = (): Promise<unknown> =>
      Promise.all(Array.from({ length: 500 }, (_, i) => good(`-${i}`)));
    for (let round = 0; round < 4; round += 1) await work();
    failures.length = 0;
    goodCalls = 0;
    const before = await gateway.stableRss();
    let peak = before;
    await attacker.openIdle(options.idleConnections);
    const endMs = Date.now() + options.durationMs;
    const isOver = (): boolean =>
      gateway.hasEnded ||
      (Date.now() >= endMs && [...attacks.values()].every((times) => times > 0));
    const attack = async (): Promise<void> => {
      while (!isOver()) {
        const name = await attacker.attack();
        attacks.set(name, (attacks.get(name) ?? 0) + 1);
      }
    };
    const behave = async (): Promise<void> => {
      while (!isOver()) {
        await good();
        peak = Math.max(peak, await gateway.rss());
        await delay(50);
      }
    };
    await Promise.all([attack(), attack(), attack(), attack(), behave()]);
    attacker.close();
    const result = { attacks, goodCalls, failures, refused };
    const after = await gateway.shrunkRss(before * options.mostGrowth, work);
    return {
      ...result,
      goodAfterwards: !gateway.hasEnded && (await good()),
      rss: { before, peak, after },
      ending: gateway.ending,
      defects: gateway.defects,
    };
  } finally {
    attacker.close();
    client.close();
    await gateway.stop();
    await driver.close();
  }
}
