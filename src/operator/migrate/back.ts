import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { listJournal } from '../../journal/list-journal.ts';
import { leaseName } from '../../election/lease.ts';
import { messageOf } from '../../runtime/error-message.ts';
import { UsageError } from '../../runtime/flags.ts';
import { isFields } from '../../runtime/json.ts';
import type { Means, Result } from '../command.ts';
import type { migrate as command } from '../flags.ts';
import { kubectlName } from './findings.ts';
import { type Fields, findProvisioner, isSutler, type Workload } from './provisioner.ts';

/** What `sutler migrate` wrote into a folder. */
interface Written {
  readonly out: string;
  readonly driver: string;
  /** As it was before. */
  readonly workload: Workload;
  /** Whether sutler was in the place of external-provisioner there. */
  readonly isDropIn: boolean;
  readonly namespace: string;
  readonly service: string;
  readonly leaseNamespace: string;
}

/** Says how external-provisioner comes back by the folder; changes nothing.
 * @param parse  reads the documents of a YAML text */
export async function tellBack(
  { context, openKube }: Means<typeof command.flags>,
  out: string,
  parse: (path: string, text: string) => readonly unknown[],
): Promise<Result> {
  const written = await readWritten(out, parse);
  const { driver } = written;
  const { leaseNamespace: namespace } = written;
  const journal = { namespace, lease: leaseName(driver), driver };
  const open = await openKube(context.flags)
    .then((kube) => listJournal(kube, journal))
    .catch(() => undefined);
  const steps = stepsBack(written);
  const [first] = open ?? [];
  const unfinished =
    open === undefined
      ? 'whether claims are in the journal was not checked: the API server can’t be asked'
      : first === undefined
        ? 'no claim is in the journal'
        : `${open.length} claims are in the journal: step 1 ends when what was begun is finished`;
  return {
    status: 0,
    lines: [
      `back to ${written.isDropIn ? 'sutler in the driver’s pod' : 'external-provisioner'} for ` +
        `${driver}; nothing was changed. ${unfinished}`,
      '',
      ...steps.map((step, i) => `${i + 1}. ${step}`),
    ],
    json: { driver, out, journal: open?.length, steps },
  };
}

function stepsBack(written: Written): readonly string[] {
  const { out, driver, workload, isDropIn, namespace, service, leaseNamespace } = written;
  const name = kubectlName(workload);
  const lease = leaseName(driver);
  return [
    `sutler drain --wait --driver-name=${driver}`,
    `have ingest release the Lease: kubectl -n sutler scale deploy sutler-ingest sutler-jobs ` +
      `--replicas=0; if they serve other drivers too, take ${driver} out of the drivers.yaml of your ` +
      'kustomization instead and kubectl apply -k it (k8s/README.md), which undoes a kubectl edit',
    // Later the Lease is held by sutler, and uninstall refuses.
    ...(isDropIn
      ? ['if they serve no other driver, before the next step: sutler uninstall --yes']
      : []),
    `kubectl replace --save-config -f ${out}/back/workload.yaml; ` +
      `kubectl -n ${namespace} rollout status ${name}`,
    `look at kubectl -n ${leaseNamespace} get lease ${lease}: its holder is ` +
      `${isDropIn ? `sutler in a pod of ${name}` : 'not sutler'}; and at ` +
      'kubectl get pvc -A: claims that were Pending become Bound',
    `kubectl delete -k ${out}/beside; kubectl -n ${namespace} delete secret ${service}-tls`,
    `${isDropIn ? '' : 'to be rid of sutler: sutler uninstall. '}To come back to ` +
      `${isDropIn ? 'its workers' : 'it'}: sutler migrate again, and then ` +
      `sutler drain --undo --driver-name=${driver}${isDropIn ? ', unless it was uninstalled' : ''}`,
  ];
}

/** @throws UsageError for a folder that sutler migrate did not write */
async function readWritten(
  out: string,
  parse: (path: string, text: string) => readonly unknown[],
): Promise<Written> {
  const read = async (path: string): Promise<readonly unknown[]> => {
    const file = join(out, path);
    return parse(file, await readFile(file, 'utf8'));
  };
  try {
    const { workload, container } = findProvisioner(await read('back/workload.yaml'));
    const isDropIn = isSutler(container);
    const [config] = await read('drivers.yaml');
    const drivers = isFields(config) && isFields(config['drivers']) ? config['drivers'] : {};
    const [[driver, section] = ['', undefined]] = Object.entries(drivers);
    const where = isFields(section) ? String(section['gateway-service']) : '';
    const [namespace = '', service = ''] = where.split('/');
    if (service === '') throw new Error('drivers.yaml has no gateway-service');
    const leaseNamespace = String((section as Fields)['leader-election-namespace']);
    return { out, driver, workload, isDropIn, namespace, service, leaseNamespace };
  } catch (cause) {
    throw new UsageError(
      `${out} is no folder that sutler migrate wrote (${messageOf(cause)}): name its --out`,
      { cause },
    );
  }
}
