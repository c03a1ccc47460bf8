import type { Redis } from 'ioredis';
import type { KubeClient } from '../kube/client.ts';
import { isOutage, KubeError } from '../kube/kube-error.ts';
import { openKubeClient } from '../kube/open-client.ts';
import { openRedisAccess, parseRedisUrl, redisAddress } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { describeRedisError, isDenial, isRefusal } from '../redis/error-text.ts';
import type { redisFlags } from '../redis/flags.ts';
import { signalWithin, unlessAborted } from '../runtime/clock.ts';
import { messageOf } from '../runtime/error-message.ts';
import { type Flags, type FlagTable, UsageError } from '../runtime/flags.ts';
import { findOwnSutler, type GivenFlags } from '../runtime/own-folder.ts';
import { isFields } from '../runtime/json.ts';
import type { CommandHelp } from '../runtime/parse-flags.ts';
import { escapeControls } from '../runtime/printable.ts';
import { type Invocation, type ProcessContext, runProcess } from '../runtime/process.ts';
import type { commandFlags } from './flags.ts';

/** Why a command does not do its work, and what to do next. */
export class Refusal extends UsageError {
  override readonly name = 'Refusal';
  override readonly exitStatus = 1;
}

/** What a command has found or done. */
export interface Result {
  readonly status: number;
  /** For people. */
  readonly lines: readonly string[];
  /** For -o json, with times in Unix ms. */
  readonly json: object;
}

/** What a command works with. */
export interface Means<T extends FlagTable> {
  readonly context: ProcessContext<T>;
  /** Connects to Redis.
   * @throws Refusal if it can't be used in time */
  openRedis(this: void): Promise<Redis>;
  openKube(this: void): Promise<KubeClient>;
}

/** Longer than the client usually needs to notice a failover of Redis. */
const REDIS_LIMIT_MS = 5_000;

/** Makes the `main` of a command, which prints its result as text or with -o json. Exit status:
 * from the result; 1 with one line on stderr if the command refuses or can't use what it needs.
 * @param redisLimitMs  how long Redis may take to become usable */
export function commandMain<T extends FlagTable & typeof commandFlags>(
  description: {
    readonly name: string;
    readonly summary: string;
    readonly flags: T;
    readonly command: CommandHelp;
  },
  run: (means: Means<T>) => Promise<Result>,
  redisLimitMs = REDIS_LIMIT_MS,
): (invocation: Invocation) => Promise<void> {
  const { name, flags: table } = description;
  const start = async (context: ProcessContext<T>): Promise<void> => {
    // T contains these, which Flags<T> does not show for a generic T.
    const flags = context.flags as unknown as Flags<typeof commandFlags>;
    let link: RedisLink | undefined;
    try {
      const { status, lines, json } = await run({
        context,
        async openRedis() {
          link = await connect(name, { ...context, flags }, redisLimitMs);
          return link.redis;
        },
        openKube: () => openKubeClient(name, { ...context, flags }),
      });
      for (const line of flags.output === 'json' ? encode(json) : lines)
        context.stdout.write(`${escapeControls(line)}\n`);
      context.stop(status);
    } catch (error) {
      if (error instanceof UsageError) throw error;
      throw new Refusal(describeFailure(error, link), { cause: error });
    }
  };
  return async (invocation) => {
    const inherited = await inheritedFlags(invocation);
    return runProcess({ ...invocation, inherited }, { ...description, table, start });
  };
}

/** The flags of the `sutler all` in whose container this command runs, unless the command names
 * another Redis. */
async function inheritedFlags({ host, argv }: Invocation): Promise<GivenFlags | undefined> {
  if (argv.some((each) => /^--redis-url(=|$)/.test(each))) return undefined;
  const own = await findOwnSutler(host.env);
  if (own === undefined) return undefined;
  const url = host.env['REDIS_URL'] || host.env['SUTLER_REDIS_URL'] || '';
  try {
    return url === '' || redisAddress(parseRedisUrl(url)) === own.redis ? own.given : undefined;
  } catch {
    // The command refuses the URL when it uses it.
    return undefined;
  }
}

const NO_REDIS =
  '--redis-url (REDIS_URL) is missing, and no sutler all of this user runs here: name the Redis ' +
  'of the installation, or run this in its container: kubectl exec … -- sutler …';

async function connect(
  name: string,
  context: ProcessContext<typeof redisFlags>,
  limitMs: number,
): Promise<RedisLink> {
  const { flags, closers, stopping } = context;
  // The command throws the connection's errors below, so it need not log them.
  const log = context.log.child({}, { level: 'error' });
  const access = await openRedisAccess({ ...context, log });
  if (flags.redisUrl === '') throw new UsageError(NO_REDIS);
  const connection = { url: flags.redisUrl, role: 'plain', name: `sutler-${name}` } as const;
  const link = openRedis({ ...connection, access, log });
  closers.add('Redis', () => link.close());
  const ready = new Promise<void>((resolve) => link.onReady(resolve));
  await unlessAborted(ready, signalWithin(stopping, limitMs));
  if (link.trouble !== undefined) throw new Refusal(link.trouble);
  return link;
}

/** The error as one sentence that says what to do. */
function describeFailure(error: unknown, link: RedisLink | undefined): string {
  const message = messageOf(error);
  if (error instanceof KubeError)
    return isOutage(error)
      ? `the API server does not answer (${message}): check --kubeconfig and --master, or try again`
      : `the API server refuses this request: ${message}`;
  if (link === undefined) return message;
  if (isDenial(error))
    return (
      `Redis at ${link.address}: ${message}: run this in a container of ingest ` +
      '(kubectl exec deploy/sutler-ingest -- sutler …), or with the URL of the user ' +
      'sutler-operator, and with its rights from the present k8s/redis/users.acl'
    );
  if (isRefusal(error) || /max retries per request|Command timed out|Connection is/.test(message))
    return link.trouble ?? describeRedisError(link.address, error);
  return message;
}

/** Version of the output of -o json. It changes when a field is renamed, removed, or gets another
 * meaning. */
const FORMAT_VERSION = 1;

function encode(value: object): readonly string[] {
  return JSON.stringify({ version: FORMAT_VERSION, ...value }, toPlain, 2).split('\n');
}

/** Smaller numbers are durations: every time since 2001 is larger, and no duration is. */
const FIRST_TIME_MS = 1e12;

/** Times become RFC 3339, and lose the unit in their names. */
function toPlain(_: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (!isFields(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, each]) =>
      typeof each === 'number' && each >= FIRST_TIME_MS && name.endsWith('Ms')
        ? [name.slice(0, -2), new Date(each).toISOString()]
        : [name, each],
    ),
  );
}
