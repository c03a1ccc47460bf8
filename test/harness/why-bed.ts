import type { TestContext } from 'node:test';
import type { Event, Volume } from '#src/kube/objects.ts';
import { claims, events, volumes } from '#src/kube/resources.ts';
import type { DropInBed } from './drop-in-bed.ts';
import type { SutlerProcess } from './program.ts';
import { until } from './until.ts';

/* Users of external-provisioner have asked for what docs/why.md lists. The same steps show for each
 * that sutler gives it, and that external-provisioner does not. */

/** Starts a provisioner in the container of a bed, with upstream's arguments. */
export type Start = (
  bed: DropInBed,
  args?: readonly string[],
  env?: Readonly<Record<string, string>>,
) => Promise<SutlerProcess>;

/** Of both: calls end soon, and nothing limits the requests. */
const ARGS = [
  '--timeout=2s',
  '--retry-interval-start=200ms',
  '--kube-api-qps=500',
  '--kube-api-burst=1000',
];

export const startSutler: Start = (bed, args = [], env) =>
  bed.start([...ARGS, '--settle-time=1s', ...args], env);

/** A test of external-provisioner, which is skipped without its program. */
export function ofUpstream(
  env: NodeJS.ProcessEnv,
  run: (start: Start) => Promise<void>,
): (t: TestContext) => Promise<void> {
  const program = env['EXTERNAL_PROVISIONER'] ?? '';
  return async (t) => {
    if (program === '') t.skip('set EXTERNAL_PROVISIONER to the path of csi-provisioner');
    else await run((bed, args = [], env) => bed.start([...ARGS, ...args], env, program));
  };
}

/** What holds back whoever waits for `passed`, while it is closed. */
export class Gate {
  passed: Promise<void> = Promise.resolve();
  open = (): void => undefined;

  close(): void {
    this.passed = new Promise((resolve) => (this.open = resolve));
  }
}

/** The PVs of the bed's class. */
export async function pvsOf({ kube, className }: DropInBed): Promise<readonly Volume[]> {
  const { items } = await kube.list<Volume>(volumes, {});
  return items.filter(({ spec }) => spec.storageClassName === className);
}

export async function deleteClaim({ kube, namespace }: DropInBed, name: string): Promise<void> {
  await kube.delete(claims, { namespace, name });
}

/** Waits until all has been done for the claims, which have all been deleted: a claim that is
 * created now is Bound and deleted, sutler's journal is empty, and there is no PV.
 * @returns handles of the volumes that the driver has all the same */
export async function leakedVolumes(bed: DropInBed): Promise<readonly string[]> {
  await bed.createClaim('last');
  await until(() => bed.isBound('last'), 'the last claim is Bound');
  await deleteClaim(bed, 'last');
  await until(async () => (await bed.readJournal()).length === 0, 'the journal is empty');
  await until(async () => (await pvsOf(bed)).length === 0, 'no PV is left');
  return bed.handles();
}

/** Sums the series of a metric that have these labels, in any order. */
export async function readMetric(
  { url }: SutlerProcess,
  name: string,
  ...labels: readonly string[]
): Promise<number> {
  const page = await (await fetch(`${url}/metrics`)).text();
  const series = page.split('\n').filter((line) => line.startsWith(`${name}{`));
  return series
    .filter((line) => labels.every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

/** What events of others than kube-controller-manager say of a claim. */
export async function eventsOf(bed: DropInBed, claim: string): Promise<readonly string[]> {
  const { items } = await bed.kube.list<Event & { readonly source?: { component?: string } }>(
    events,
    { namespace: bed.namespace },
  );
  return items
    .filter(({ involvedObject }) => involvedObject.name === claim)
    .filter(({ source }) => source?.component !== 'persistentvolume-controller')
    .map(({ message }) => message);
}
