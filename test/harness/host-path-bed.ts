import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Closers } from '#src/runtime/closers.ts';
import { at, type Fields, type Reply, textAt, unique } from '../conformance/connection.ts';
import { claim, paths, VOLUMES } from '../conformance/objects.ts';
import { type HostPathOptions, startHostPathDriver } from './host-path-driver.ts';
import { startDropIn } from './program.ts';
import { realControlPlane } from './real-control-plane.ts';

/** Path of hostpathplugin; undefined = its tests don't run, which is printed. */
export const HOST_PATH_PROGRAM = process.env['CSI_HOSTPATH'] || undefined;
if (HOST_PATH_PROGRAM === undefined)
  process.stdout.write(
    'csi-driver-host-path: not tested; set CSI_HOSTPATH to the path of hostpathplugin\n',
  );

/** A real control plane and a csi-driver-host-path; the test starts sutler. */
export type HostPathBed = Awaited<ReturnType<typeof open>>;

/** Starts them.
 * @param prepare  creates objects, and starts sutler */
export async function openHostPathBed(
  program: string,
  options: Pick<HostPathOptions, 'node' | 'capacity'>,
  prepare: (bed: HostPathBed) => Promise<void>,
): Promise<HostPathBed> {
  const closers = new Closers();
  try {
    const bed = await open(program, options, closers);
    await prepare(bed);
    return bed;
  } catch (error) {
    await closers.close();
    throw error;
  }
}

async function open(
  program: string,
  options: Pick<HostPathOptions, 'node' | 'capacity'>,
  closers: Closers,
) {
  const plane = await realControlPlane(process.env, { binder: true })();
  closers.add('cluster', () => plane.close());
  const { api } = plane;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-host-path-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const name = `${unique('hostpath')}.csi.k8s.io`;
  const driver = await startHostPathDriver({ program, folder, name, ...options });
  closers.add('driver', () => driver.stop());
  const namespace = await api.namespace();
  const { claims, events } = paths(namespace);
  const createClaim = async (name: string, spec: Fields, metadata: Fields = {}): Promise<void> =>
    void (await api.create(claims, claim(name, { metadata, spec })));
  return {
    plane,
    api,
    driver,
    namespace,
    createClaim,
    async startSutler(flags: readonly string[], env: Record<string, string> = {}): Promise<void> {
      const sutler = await startDropIn({
        args: [`--kubeconfig=${plane.kubeconfig}`, '--retry-interval-start=200ms', ...flags],
        socket: driver.socket,
        namespace,
        env: { TMPDIR: folder, ...env },
      });
      closers.add('sutler', () => sutler.stop());
    },
    /** Creates a claim and waits until it is Bound.
     * @returns its volume */
    async bind(name: string, spec: Fields, metadata: Fields = {}): Promise<unknown> {
      await createClaim(name, spec, metadata);
      const isBound = ({ body }: Reply): boolean => at(body, 'status', 'phase') === 'Bound';
      const { body } = await api.until(`${claims}/${name}`, isBound);
      return api.read(`${VOLUMES}/${textAt(body, 'spec', 'volumeName')}`);
    },
    /** Waits for the event of a failed claim.
     * @returns its message */
    async failureOf(name: string): Promise<string> {
      const fieldSelector = `involvedObject.name=${name},reason=ProvisioningFailed`;
      const isThere = ({ body }: Reply): boolean => at(body, 'items', 0) !== undefined;
      const { body } = await api.until(events, isThere, { fieldSelector });
      return textAt(body, 'items', 0, 'message');
    },
    close: async () => assert.deepEqual(await closers.close(), []),
  };
}
