import { randomBytes } from 'node:crypto';
import { openRedis } from '../redis/connection.ts';
import { keyPrefix } from '../redis/key-names.ts';
import { isLoopback, parseListenAddress } from '../runtime/address.ts';
import { systemClock } from '../runtime/clock.ts';
import { UsageError } from '../runtime/flags.ts';
import { startHttp } from '../runtime/http.ts';
import { runProcess, type Invocation, type ProcessContext } from '../runtime/process.ts';
import { flags, summary } from './flags.ts';
import { startDashboard } from './server.ts';

/** The dashboard process. */
export function main(invocation: Invocation): Promise<void> {
  return runProcess(invocation, { name: 'dashboard', summary, table: flags, start });
}

async function start(p: ProcessContext<typeof flags>): Promise<void> {
  const { flags: f, log, metrics, closers } = p;
  keyPrefix(f.redisPrefix);
  if (f.dashboardUser === '' || f.dashboardUser.includes(':')) {
    throw new UsageError(
      '--dashboard-user: empty or with a colon, which HTTP basic can’t carry; choose another name',
    );
  }
  const made = f.dashboardPassword === '' ? randomBytes(15).toString('base64url') : undefined;
  const { host } = parseListenAddress('dashboard-address', f.dashboardAddress);
  if (host === undefined || !isLoopback(host)) {
    log.warn(
      { address: f.dashboardAddress },
      'the dashboard listens beyond this machine in plain HTTP: put a proxy with TLS in front',
    );
  }

  const link = openRedis({
    url: f.redisUrl,
    role: 'plain',
    name: `sutler-dashboard:${p.pid}`,
    log,
  });
  closers.add('Redis', () => link.close());
  const dashboard = await startDashboard({
    address: f.dashboardAddress,
    user: f.dashboardUser,
    password: made ?? f.dashboardPassword,
    allowActions: f.dashboardAllowActions,
    link,
    prefix: f.redisPrefix,
    log,
    metrics,
    clock: systemClock,
  });
  closers.add('dashboard', () => dashboard.close());
  const facts = {
    dashboard: dashboard.url,
    user: f.dashboardUser,
    ...(made === undefined ? {} : { password: made }),
  };
  if (f.httpEndpoint === '') return p.announce(facts);
  const http = await startHttp({
    address: f.httpEndpoint,
    metrics,
    metricsPath: f.metricsPath,
    ready: [{ name: 'redis', check: () => link.trouble }],
    log,
  });
  closers.add('HTTP', () => http.close());
  p.announce({ ...facts, http: http.url });
}
