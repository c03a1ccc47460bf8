import { join } from 'node:path';
import { createKubeClient, type KubeClient } from '#src/kube/client.ts';
import { loadClusterAccess } from '#src/kube/open-client.ts';
import { classes } from '#src/kube/resources.ts';
import type { Closers } from '#src/runtime/closers.ts';
import { silentLog } from '#src/runtime/log.ts';
import {
  type DriverCall,
  type SampleDriver,
  type SampleDriverOptions,
  startSampleDriver,
} from '../../../sandbox/driver/server.ts';
import type { VolumeLedger } from './volume-ledger.ts';

/** The node that a driver serves, and the size of its pool. */
export type DriverNode = Required<
  Pick<SampleDriverOptions, 'nodeId' | 'topology' | 'capacityBytes'>
>;

/** Starts a driver whose calls a ledger keeps, and creates a class of it. */
export async function openDriverPlace(o: {
  readonly kubeconfig: string;
  /** For socket and volumes. */
  readonly folder: string;
  readonly name: string;
  readonly delayMs: number;
  readonly ledger: VolumeLedger;
  /** Of the driver, which has no topology without them. */
  readonly node?: DriverNode | undefined;
  /** Runs before each call, as the driver's own hook. The ledger keeps what it passes on. */
  readonly onCall?: SampleDriverOptions['onCall'] | undefined;
  readonly closers: Closers;
}): Promise<{
  readonly driver: SampleDriver;
  readonly kube: KubeClient;
  readonly className: string;
}> {
  const { kubeconfig, folder, name, delayMs, ledger, node, closers } = o;
  const onCall = async (call: DriverCall): Promise<unknown> => {
    const proceed: DriverCall['proceed'] = async () =>
      ((await ledger.onCall(call)) as Record<string, unknown> | undefined) ?? call.proceed();
    return (await o.onCall?.({ ...call, proceed })) ?? ledger.onCall(call);
  };
  const driver = await startSampleDriver({
    socket: join(folder, 'csi.sock'),
    dataDir: join(folder, 'volumes'),
    name,
    delayMs,
    ...node,
    onCall,
  });
  closers.add('driver', () => driver.close());
  const kube = createKubeClient({
    access: await loadClusterAccess({ kubeconfig, env: {} }),
    userAgent: 'test',
    log: silentLog,
  });
  closers.add('client', () => kube.close());
  const className = name.replaceAll('.', '-');
  await kube.create(classes, undefined, {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'StorageClass',
    metadata: { name: className },
    provisioner: name,
    reclaimPolicy: 'Delete',
  });
  closers.add('class', () => kube.delete(classes, { name: className }));
  return { driver, kube, className };
}
