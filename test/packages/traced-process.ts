import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** What tsc compiled; scripts/join-tests.mjs joins a program that is named in one piece. */
const CLI = fileURLToPath(new URL('../../../', import.meta.url)) + 'dist/cli.js';

/** A process of sutler that notes which files it loads. */
export interface TracedProcess {
  /** What it announced when it was ready. */
  readonly facts: Readonly<Record<string, string>>;
  /** Kills it, where a failure left it running. */
  kill(): void;
  /** Ends it as SIGTERM does.
   * @returns folders of the packages that it had loaded, such as node_modules/express */
  stop(): Promise<ReadonlySet<string>>;
}

/** Starts a process and waits until it is ready. Node itself writes at its end which scripts it
 * has compiled, for measuring their coverage.
 * @param o.traceDir  an empty folder for that
 * @param o.env       its whole environment
 * @param o.cli       its program; by default that of the checkout */
export async function startTraced(
  argv: readonly string[],
  o: {
    readonly traceDir: string;
    readonly env: Readonly<Record<string, string | undefined>>;
    readonly cli?: string;
  },
): Promise<TracedProcess> {
  const child = spawn(
    process.execPath,
    [
      '--import',
      new URL('../harness/service-account.js', import.meta.url).href,
      o.cli ?? CLI,
      ...argv,
    ],
    {
      env: { PATH: process.env['PATH'], NODE_V8_COVERAGE: o.traceDir, ...o.env },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    },
  );
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const failed = exited.then(([code]) => {
    process.removeListener('exit', killNow);
    throw new Error(`${argv[0]} ended with ${code}: ${output}`);
  });
  failed.catch(() => undefined);
  const [message] = (await Promise.race([once(child, 'message'), failed])) as [
    { readonly facts: Readonly<Record<string, string>> },
  ];
  return {
    facts: message.facts,
    kill: killNow,
    async stop() {
      child.kill('SIGTERM');
      const [code] = await exited;
      if (code !== 0) throw new Error(`${argv[0]} ended with ${code}: ${output}`);
      return loadedPackages(o.traceDir);
    },
  };
}

async function loadedPackages(traceDir: string): Promise<ReadonlySet<string>> {
  const loaded = new Set<string>();
  for (const file of await readdir(traceDir)) {
    const { result } = JSON.parse(await readFile(`${traceDir}/${file}`, 'utf8')) as {
      readonly result: readonly { readonly url: string }[];
    };
    for (const { url } of result) {
      const [folder] =
        /node_modules\/(?:@[^/]+\/)?[^/]+(?:\/node_modules\/(?:@[^/]+\/)?[^/]+)*/.exec(url) ?? [];
      if (folder !== undefined) loaded.add(folder);
    }
  }
  return loaded;
}
