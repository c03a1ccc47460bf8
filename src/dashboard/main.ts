import { randomBytes } from 'node:crypto';
import { listDrivers } from '../queue/queues.ts';
import { openRedisAccess } from '../redis/access.ts';
import { openRedis, type RedisLink } from '../redis/connection.ts';
import { describeRedisError } from '../redis/error-text.ts';
import { keyPrefix } from '../redis/key-prefix.ts';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { UsageError } from '../runtime/flags.ts';
import { openHttpEndpoint } from '../runtime/http.ts';
import { type Invocation, type ProcessContext, runProcess } from '../runtime/process.ts';
import { flags as table, summary } from './flags.ts';
import { startDashboard } from './server.ts';

type DashboardContext = ProcessContext<typeof table>;

/** The dashboard process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'dashboard', summary, table, start });
}

/** Opens all parts of the dashboard, which then run until the process closes. */
export async function start(context: DashboardContext): Promise<void> {
  const { flags, log, metrics, closers, health } = context;
  checkFlags(context);
  const { dashboardUser: user, dashboardPassword, dashboardAllowActions: mayAct } = flags;
  const { dashboardViewerUser, dashboardViewerPassword } = flags;
  const generated = dashboardPassword === '' ? randomBytes(15).toString('base64url') : '';
  const operator = { user, password: generated || dashboardPassword, mayAct };
  const viewer = { user: dashboardViewerUser, password: dashboardViewerPassword, mayAct: false };

  const name = `sutler-dashboard:${context.pid}`;
  const access = await openRedisAccess(context);
  const link = openRedis({ url: flags.redisUrl, access, role: 'plain', name, log });
  closers.add('Redis', () => link.close());
  let refusal: string | undefined;
  health.ready('redis', () => {
    if (link.trouble === undefined)
      void tryToRead(link, flags.redisPrefix).then((line) => (refusal = line));
    return link.trouble ?? refusal;
  });

  const dashboard = await startDashboard({
    address: flags.dashboardAddress,
    trustedProxies: flags.dashboardTrustedProxies,
    accounts: viewer.password === '' ? [operator] : [operator, viewer],
    link,
    prefix: flags.redisPrefix,
    log,
    metrics,
  });
  closers.add('dashboard', () => dashboard.close());

  context.announce({
    dashboard: dashboard.url,
    user,
    ...(generated === '' ? {} : { password: generated }),
    ...(await openHttpEndpoint(context)),
  });
}

/** Reads what every page reads, so that /readyz finds a Redis that refuses it.
 * @returns what Redis refuses, in one line */
async function tryToRead(link: RedisLink, prefix: string): Promise<string | undefined> {
  try {
    await listDrivers(link.redis, prefix);
    return undefined;
  } catch (error) {
    return describeRedisError(link.address, error);
  }
}

function checkFlags({ flags, log }: DashboardContext): void {
  keyPrefix(flags.redisPrefix);
  const { dashboardUser, dashboardViewerUser } = flags;
  checkUser('--dashboard-user', dashboardUser);
  checkUser('--dashboard-viewer-user', dashboardViewerUser);
  if (dashboardUser === dashboardViewerUser)
    throw new UsageError('--dashboard-viewer-user: must differ from --dashboard-user');
  checkPassword('--dashboard-password', flags.dashboardPassword);
  checkPassword('--dashboard-viewer-password', flags.dashboardViewerPassword);
  const { dashboardAddress: address } = flags;
  const { host } = parseListenAddress('dashboard-address', address);
  if (host === undefined || !isLoopback(host))
    log.warn(
      { address },
      'other machines can reach the dashboard by plain HTTP: ' +
        'put a proxy with TLS in front of it',
    );
}

const MIN_PASSWORD_LENGTH = 12;
const MIN_DIFFERENT_CHARACTERS = 5;

function checkUser(flag: string, user: string): void {
  if (user === '' || user.includes(':'))
    throw new UsageError(
      `${flag}: must not be empty or contain a colon, which HTTP basic can’t carry`,
    );
}

/** @throws UsageError without the password in it */
function checkPassword(flag: string, password: string): void {
  const characters = Array.from(password);
  const isWeak =
    characters.length < MIN_PASSWORD_LENGTH || new Set(characters).size < MIN_DIFFERENT_CHARACTERS;
  if (password !== '' && isWeak)
    throw new UsageError(
      `${flag} (or its variable): too weak; give at least ` +
        `${MIN_PASSWORD_LENGTH} characters, ${MIN_DIFFERENT_CHARACTERS} of them different, ` +
        'or leave it out (the operator’s is then generated at start and logged once)',
    );
}
