import { VOLUME_FINALIZER } from '../../kube/keys.ts';
import { isNotFound, isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { addFinalizer, removeFinalizer } from '../../volumes/finalizers.ts';
import type { FinalizerChange } from '../../volumes/finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Puts our finalizer on a volume. */
export async function addVolumeFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  volume: Volume,
): Promise<Outcome> {
  return patch(ports, volume, {
    change: addFinalizer(volume.metadata, VOLUME_FINALIZER),
    note: 'finalizer added',
  });
}

/** Takes our finalizer off a volume. */
export async function removeVolumeFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  volume: Volume,
): Promise<Outcome> {
  return patch(ports, volume, {
    change: removeFinalizer(volume.metadata, VOLUME_FINALIZER),
    note: 'finalizer removed',
  });
}

/** Sends the change; it names the UID, so that a namesake is left alone. A failure has no event:
 * nobody who reads events can do anything about it. */
async function patch(
  ports: Pick<ProcessorPorts, 'kube'>,
  { metadata: { name, uid } }: Volume,
  { change, note }: { readonly change: FinalizerChange | undefined; readonly note: string },
): Promise<Outcome> {
  if (change === undefined) return { kind: 'done', note: 'the finalizers are as they should be' };
  try {
    await ports.kube.patch(
      volumes,
      { name },
      { type: 'strategic', body: { metadata: { uid, ...change.patch } } },
    );
    return { kind: 'done', note };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof KubeError)) throw error;
    const reason = `failed to modify finalizers to [${change.list.join(' ')}] on volume ${name} err: ${error.message}`;
    return isOutage(error) ? { kind: 'later', reason } : { kind: 'retry', reason, error };
  }
}
