import { startDropIn } from '../program.ts';

/** A running provisioner. */
export interface Provisioner {
  /** The end of its output. */
  output(): string;
  stop(): Promise<void>;
}

export interface ProvisionerOptions {
  readonly kubeconfig: string;
  /** Of the driver; for a driver on each node, of the first one. */
  readonly socket: string;
  /** The nodes with a driver of their own. */
  readonly nodes?: readonly { readonly name: string; readonly socket: string }[];
  /** Variables of its environment. */
  readonly env: Readonly<Record<string, string>>;
  /** For its files. */
  readonly folder: string;
  /** For its Lease. */
  readonly namespace: string;
  /** For both provisioners, in upstream's spelling. */
  readonly flags: readonly string[];
}

const STOP_GRACE_MS = 30_000;

/** Starts sutler in the place of external-provisioner, or that, one process for each node if the
 * driver runs on nodes.
 * @param program  path of external-provisioner */
export async function startProvisioner(
  o: ProvisionerOptions,
  program?: string,
): Promise<Provisioner> {
  const { kubeconfig, namespace, nodes = [{ socket: o.socket }], flags } = o;
  // After a call of unknown end a deletion of sutler waits that long (docs/parity.md).
  const own = program === undefined ? ['-v=4', '--settle-time=1s'] : ['-v=5'];
  const all = await Promise.all(
    nodes.map(({ socket, ...node }) =>
      startDropIn({
        args: [`--kubeconfig=${kubeconfig}`, ...own, ...flags],
        socket,
        namespace,
        env: { TMPDIR: o.folder, ...o.env, ...('name' in node ? { NODE_NAME: node.name } : {}) },
        program,
      }),
    ),
  );
  return {
    output: () => all.map((each) => each.output()).join('\n'),
    stop: async () => {
      await Promise.all(all.map((each) => each.stop(STOP_GRACE_MS)));
    },
  };
}
