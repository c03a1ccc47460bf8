import type { ClaimProgress } from './claim-progress.ts';
import type { Environment } from './environment.ts';
import { describeNode } from './nodes.ts';
import type { PodProgress } from './pod-progress.ts';

/** The first lines of `npm start`. */
export const INTRODUCTION = `sutler sandbox: sutler with a small Kubernetes API and a sample CSI driver.
Everything runs on this machine. No cluster is touched.`;

/** One line: the claim, and the time of each step since its creation. */
export function describeProgress(progress: ClaimProgress): string {
  const step = (name: string, ms: number | undefined): string =>
    `${name} ${ms === undefined ? 'never' : `after ${Math.round(ms)} ms`}`;
  const steps = [
    step('requested', progress.requestedMs),
    step('PV', progress.volumeMs),
    step('Bound', progress.boundMs),
  ];
  const place = progress.node === undefined ? '' : ` on ${nodeText(progress.node)}`;
  return `  ${progress.claim.padEnd(18)} ${steps.join(', ')}${place}`;
}

/** One line: the pod, its node, and the nodes that were tried before.
 * @param claims  the progress of all claims */
export function describePod(progress: PodProgress, claims: readonly ClaimProgress[]): string {
  const { pod, runningMs, node } = progress;
  const name = `  ${pod.padEnd(18)}`;
  if (runningMs === undefined || node === undefined) return `${name} Running never`;
  const tried = claims
    .filter(({ claim }) => progress.claims.includes(claim))
    .flatMap(({ selectedNodes }) => selectedNodes.filter((each) => each !== node));
  const others =
    tried.length === 0 ? '' : `; no room on ${[...new Set(tried)].map(nodeText).join(', ')}`;
  return `${name} Running after ${Math.round(runningMs)} ms on ${nodeText(node)}${others}`;
}

function nodeText(name: string): string {
  return describeNode(name) ?? name;
}

/** What runs, where, and what to try next. */
export function describeEnvironment(
  { facts }: Environment,
  next: {
    readonly logsFolder: string;
    readonly examplesFolder: string;
    /** The file with shellSettings(). */
    readonly shellFile: string;
    /** A claim of the examples. */
    readonly claim: string;
  },
): string {
  const row = (name: string, value = ''): string => `  ${name.padEnd(16)} ${value}`;
  const [user, password] = [facts['dashboard user'], facts['dashboard password']];
  const login = user === undefined ? '' : `  (user ${user}, password ${password})`;
  const sutler = `pid ${facts['all pid']?.padEnd(8)} ${facts['http'] ?? ''}`;
  // With --event-source=webhook or both.
  const receivers = ['events', 'admission'].flatMap((name) => {
    const url = facts[`ingest ${name}`];
    return url === undefined ? [] : [row(`POST ${name}`, url)];
  });
  return `
Running:
${row('Kubernetes API', facts['sandbox-api server'])}
${row('sample driver', facts['sandbox-driver socket'])}
${row('Redis', facts['redis'])}
${row('sutler', sutler)}
${receivers.map((line) => `${line}\n`).join('')}${row('logs', next.logsFolder)}

Open the dashboard:
  ${facts['dashboard'] ?? ''}${login}

Or try in another terminal:
  . ${next.shellFile}    # points kubectl and sutler at the sandbox
  kubectl get pvc,pv,sc
  kubectl get pods,nodes,csinodes -o wide
  kubectl describe pvc ${next.claim}
  kubectl delete pvc ${next.claim}    # deletes its volume too
  kubectl apply -f ${next.examplesFolder}     # creates it again
  sutler audit                  # compares the driver's volumes with the PersistentVolumes
  sutler drain --wait           # new claims wait from now on
  sutler drain --undo
  sutler uninstall              # refuses, since sutler is at work
  sutler --help

Press Ctrl-C to stop everything.`;
}

/** What a shell has to read before kubectl and sutler are tried on the sandbox. Only sutler gets
 * the gateway and Redis: `npm start` and `npm test` in that shell have their own. Contains the
 * password of the sandbox's Redis; a Redis that the user has named is left out.
 * @param cli  path of the compiled cli.js */
export function shellSettings(
  { kubeconfig, redisUrl, facts }: Environment,
  { cli, isOwnRedis }: { readonly cli: string; readonly isOwnRedis: boolean },
): string {
  const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const call = [
    `SUTLER_GATEWAY=${quote(facts['driver'] ?? '')}`,
    ...(isOwnRedis ? [`REDIS_URL=${quote(redisUrl)}`] : []),
    `${quote(process.execPath)} ${quote(cli)} "$@"`,
  ].join(' ');
  return `export KUBECONFIG=${quote(kubeconfig)}\nsutler() { ${call}; }\n`;
}
