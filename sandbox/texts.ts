import type { Environment } from './environment.ts';

/** The first lines of `npm start`. */
export const INTRODUCTION = `sutler sandbox: sutler with a small Kubernetes API and a sample CSI driver.
Everything runs on this machine. No cluster is touched.`;

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
  const events = facts['ingest events'];
  return `
Running:
${row('Kubernetes API', facts['sandbox-api server'])}
${row('sample driver', facts['sandbox-driver socket'])}
${row('Redis', facts['redis'])}
${row('sutler', sutler)}
${events === undefined ? '' : `${row('POST events', events)}\n`}${row('logs', next.logsFolder)}

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
  sutler drain --wait           # from now on new claims wait
  sutler drain --undo
  sutler uninstall              # refuses, because sutler is running
  sutler --help

Press Ctrl-C to stop everything.`;
}

/** The settings with which kubectl and sutler in a shell use the sandbox. Only sutler gets the
 * gateway and Redis, because `npm start` and `npm test` in that shell have their own. Contains the
 * password of the sandbox's own Redis, but not a Redis that the user has named.
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
