import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Identity } from '#src/csi/generated/csi_pb.ts';
import { CsiClient } from '#src/gateway-client/client.ts';
import { Closers } from '#src/runtime/closers.ts';
import { at, type Fields, type Reply, textAt, unique } from '../conformance/connection.ts';
import { claim, paths, VOLUMES } from '../conformance/objects.ts';
import { startDropIn, startProgram } from './program.ts';
import { realControlPlane } from './real-control-plane.ts';
import { until } from './until.ts';

/** Path of hostpathplugin; undefined = its tests don't run, which is printed. */
export const HOST_PATH_PROGRAM = process.env['CSI_HOSTPATH'] || undefined;
if (HOST_PATH_PROGRAM === undefined)
  process.stdout.write(
    'csi-driver-host-path: not tested; set CSI_HOSTPATH to the path of hostpathplugin\n',
  );

/** The driver's key of topology. */
export const NODE_KEY = 'topology.hostpath.csi/node';

interface HostPathOptions {
  /** The driver has topology: NODE_KEY with this value. */
  readonly node?: string;
  /** Room by the value of a class's parameter `kind`, as quantities; then every class needs it. */
  readonly capacity?: Readonly<Record<string, string>>;
}

/** A real control plane and a csi-driver-host-path; the test starts sutler. */
export type HostPathBed = Awaited<ReturnType<typeof openHostPathBed>>;

export async function openHostPathBed(program: string, options: HostPathOptions = {}) {
  const closers = new Closers();
  const plane = await realControlPlane(process.env, { binder: true })();
  closers.add('cluster', () => plane.close());
  const { api } = plane;
  const folder = await mkdtemp(join(tmpdir(), 'sutler-host-path-'));
  closers.add('folder', () => rm(folder, { recursive: true, force: true }));
  const driver = await startHostPathDriver(program, { folder, closers, ...options });
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

async function startHostPathDriver(
  program: string,
  o: HostPathOptions & { readonly folder: string; readonly closers: Closers },
) {
  const { folder, node, capacity = {}, closers } = o;
  const [socket, name] = [join(folder, 'hostpath.sock'), `${unique('hostpath')}.csi.k8s.io`];
  /** Contains a folder for each volume, named by its handle. */
  const volumes = join(folder, 'state');
  await mkdir(volumes, { recursive: true });
  const args = [
    `--endpoint=unix://${socket}`,
    `--drivername=${name}`,
    `--nodeid=${node ?? 'node-1'}`,
    `--statedir=${volumes}`,
    `--enable-topology=${node !== undefined}`,
    ...Object.entries(capacity).map(([kind, room]) => `--capacity=${kind}=${room}`),
  ];
  const running = startProgram(program, args, { cwd: folder, keptOutput: 8_000 });
  closers.add('driver', () => running.stop());
  const client = new CsiClient({ address: { kind: 'unix', path: socket } });
  closers.add('client', () => client.close());
  const probe = () => client.call(Identity.method.probe, {}, { timeoutMs: 1_000 });
  await until(() => {
    if (running.hasEnded) throw new Error(`${program} ended: ${running.output()}`);
    return probe().then(Boolean, () => false);
  }, 'csi-driver-host-path is ready');
  return { socket, name, volumes, client };
}
