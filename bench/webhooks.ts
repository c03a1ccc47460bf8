import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runProcess, type ProcessContext } from '#src/runtime/process.ts';
import { startRedisServer } from '../test/harness/redis-server.ts';
import { cpuMs, rssBytes } from './proc.ts';
import { type Load, type LoadResult, runLoad } from './webhooks-load.ts';
import { flags as table, summary } from './webhooks-flags.ts';

const SERVER = fileURLToPath(new URL('webhooks-server.js', import.meta.url));
const SENDERS = 100;

await runProcess(
  { host: process, argv: process.argv.slice(2), known: {} },
  { name: 'bench:webhooks', summary, table, start },
);

type Context = ProcessContext<typeof table>;

interface Server {
  readonly pid: number;
  readonly events: string;
  readonly admission: string;
}

async function start(context: Context): Promise<void> {
  const { stdout, stopping } = context;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-bench-'));
  const redis = await startRedisServer({ dataDir: join(folder, 'redis') });
  context.closers.add('Redis', async () => {
    await redis.close();
    await rm(folder, { recursive: true });
  });
  await writeFile(join(folder, 'tokens'), Array.from({ length: SENDERS }, tokenOf).join('\n'));
  stdout.write(`Node ${process.version}; ${context.flags.timeMs / 1_000} s each\n`);
  for (const { title, loads } of scenarios(context.flags.timeMs)) {
    if (stopping.aborted) return;
    const server = await startServer(context, redis.url, join(folder, 'tokens'));
    const before = await usageOf(server.pid);
    const results = await Promise.all(loads(server).map((load) => runLoad(load)));
    const after = await usageOf(server.pid);
    stdout.write(report(title, results, { before, after, forMs: context.flags.timeMs }));
    await server.stop();
  }
  context.stop(0);
}

function tokenOf(_: unknown, sender: number): string {
  return `token-0123456789-${sender} sender-${sender}`;
}

/** What is sent, each to a server of its own. The first load of each is the one that counts. */
function scenarios(forMs: number): readonly {
  readonly title: string;
  readonly loads: (server: Server) => readonly Load[];
}[] {
  const good = ({ events: url }: Server, connections: number): Load => ({
    url,
    connections,
    forMs,
    request: (n) => ({ headers: headersOf(n % SENDERS), body: eventText(n) }),
  });
  const strangers = ({ events: url }: Server): Load => ({
    url,
    connections: 100,
    forMs,
    request: (n) => ({ headers: headersOf(SENDERS), body: eventText(n) }),
  });
  const reviews = ({ admission: url }: Server): Load => ({
    url,
    connections: 4,
    forMs,
    request: (n) => ({ headers: 'Content-Type: application/json\r\n', body: reviewText(n) }),
  });
  return [
    { title: 'one sender, one connection', loads: (server) => [good(server, 1)] },
    {
      title: 'one sender beside 100 strangers',
      loads: (server) => [good(server, 1), strangers(server)],
    },
    { title: 'admission', loads: (server) => [reviews(server)] },
    {
      title: 'admission beside 100 senders',
      loads: (server) => [reviews(server), good(server, SENDERS)],
    },
  ];
}

function headersOf(sender: number): string {
  return `Content-Type: application/json\r\nAuthorization: Bearer token-0123456789-${sender}\r\n`;
}

/** About as large as a real claim. */
function claimOf(n: number): object {
  const metadata = { name: `data-${n}`, namespace: 'bench', uid: `uid-${n}` };
  const managedFields = [{ manager: 'bench', fieldsV1: { 'f:spec': 'x'.repeat(500) } }];
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { ...metadata, managedFields },
    spec: { resources: { requests: { storage: '1Gi' } }, storageClassName: 'fast' },
  };
}

function eventText(n: number): string {
  return JSON.stringify({ type: 'ADDED', object: claimOf(n) });
}

function reviewText(n: number): string {
  const request = {
    uid: `call-${n}`,
    kind: { group: '', version: 'v1', kind: 'PersistentVolumeClaim' },
    name: `data-${n}`,
    namespace: 'bench',
    operation: 'CREATE',
    object: claimOf(n),
    dryRun: false,
  };
  return JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request });
}

async function startServer(
  { closers }: Context,
  redisUrl: string,
  tokens: string,
): Promise<Server & { readonly stop: () => Promise<void> }> {
  const child = fork(SERVER, [
    `--redis-url=${redisUrl}`,
    '--webhook-address=127.0.0.1:0',
    '--admission-address=127.0.0.1:0',
    `--webhook-token-file=${tokens}`,
  ]);
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
  };
  closers.add('webhooks', stop);
  const facts = await announced(child);
  const { events = '', admission = '' } = facts;
  return { pid: child.pid ?? 0, events, admission, stop };
}

function announced(child: ChildProcess): Promise<Readonly<Record<string, string>>> {
  return new Promise((resolve, reject) => {
    child.once('exit', () => reject(new Error('the server ended')));
    child.once('message', (message) =>
      resolve((message as { readonly facts: Readonly<Record<string, string>> }).facts),
    );
  });
}

interface Usage {
  readonly cpuMs: number;
  readonly rssBytes: number;
}

async function usageOf(pid: number): Promise<Usage> {
  return { cpuMs: await cpuMs(pid), rssBytes: await rssBytes(pid) };
}

function report(
  title: string,
  results: readonly LoadResult[],
  { before, after, forMs }: { before: Usage; after: Usage; forMs: number },
): string {
  const [first] = results;
  if (first === undefined) return '';
  const cpu = (100 * (after.cpuMs - before.cpuMs)) / forMs;
  const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);
  const answers = results.map(({ statuses }) =>
    [...statuses].map(([status, count]) => `${count} x ${status}`).join(', '),
  );
  return (
    `${title}\n  ${first.perSecond.toFixed(0)}/s taken, ` +
    `p50 ${first.p50Ms.toFixed(1)} ms, p99 ${first.p99Ms.toFixed(1)} ms; ` +
    `server: ${cpu.toFixed(0)} % of a core, RSS ${mib(before.rssBytes)} to ` +
    `${mib(after.rssBytes)} MiB\n  answers: ${answers.join(' | ')}\n`
  );
}
