import type { ClaimProgress } from './claim-progress.ts';
import type { Environment } from './environment.ts';

/** The first lines of `npm start`. */
export const INTRODUCTION = `sutler sandbox: sutler with a small Kubernetes API and a sample CSI driver.
Everything runs on this machine. No cluster is touched.`;

/** One line: the claim, and the time of each step since its creation. */
export function describeProgress(progress: ClaimProgress): string {
  const step = (name: string, ms: number | undefined): string =>
    `${name} ${ms === undefined ? 'never' : `after ${Math.round(ms)} ms`}`;
  const steps = [
    step('requested', progress.requestedMs),
    step('PersistentVolume', progress.volumeMs),
    step('Bound', progress.boundMs),
  ];
  return `  ${progress.claim.padEnd(18)} ${steps.join(', ')}`;
}

/** What runs, where, and what to try next. */
export function describeEnvironment(
  { facts, kubeconfig }: Environment,
  next: {
    readonly logsFolder: string;
    readonly examplesFolder: string;
    /** A claim of the examples. */
    readonly claim: string;
  },
): string {
  const row = (name: string, value = ''): string => `  ${name.padEnd(16)} ${value}`;
  const [user, password] = [facts['dashboard user'], facts['dashboard password']];
  const login = user === undefined ? '' : `  (user ${user}, password ${password})`;
  const processes = ['ingest', 'jobs', 'csi-gateway', 'dashboard']
    .filter((name) => facts[`${name} pid`] !== undefined)
    .map((name) =>
      row(name, `pid ${facts[`${name} pid`]?.padEnd(8)} ${facts[`${name} http`] ?? ''}`.trimEnd()),
    );
  return `
Running:
${row('Kubernetes API', facts['sandbox-api server'])}
${row('sample driver', facts['sandbox-driver socket'])}
${row('Redis', facts['redis'])}
${processes.join('\n')}
${row('logs', next.logsFolder)}

Open the dashboard:
  ${facts['dashboard'] ?? ''}${login}

Or try in another terminal:
  export KUBECONFIG=${kubeconfig}
  kubectl get pvc,pv,sc
  kubectl describe pvc ${next.claim}
  kubectl delete pvc ${next.claim}    # deletes its volume too
  kubectl apply -f ${next.examplesFolder}     # creates it again

Press Ctrl-C to stop everything.`;
}
