import { VOLUME_FINALIZER } from '../../kube/keys.ts';
import { isNotFound, isOutage, KubeError } from '../../kube/kube-error.ts';
import type { Volume } from '../../kube/objects.ts';
import { volumes } from '../../kube/resources.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { addFinalizer, removeFinalizer } from '../finalizers.ts';
import type { ProcessorPorts } from '../ports.ts';

/** Adds our finalizer to a PV, or removes it; it keeps the PV until the driver has deleted the volume.
 * A failure gets no event: users can do nothing about it. */
export async function setVolumeFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  volume: Volume,
  isWanted: boolean,
): Promise<Outcome> {
  const target = { resource: volumes, object: volume, finalizer: VOLUME_FINALIZER };
  try {
    await (isWanted ? addFinalizer(ports, target) : removeFinalizer(ports, target));
    return { kind: 'done', note: `the PV ${isWanted ? 'has' : 'does not have'} our finalizer` };
  } catch (error) {
    if (isNotFound(error)) return { kind: 'done', note: 'the volume is gone' };
    if (!(error instanceof KubeError)) throw error;
    const { name, finalizers = [] } = volume.metadata;
    const others = finalizers.filter((other) => other !== VOLUME_FINALIZER);
    const list = isWanted ? [...others, VOLUME_FINALIZER] : others;
    const reason = `failed to modify finalizers to [${list.join(' ')}] on volume ${name} err: ${error.message}`;
    return { kind: isOutage(error) ? 'later' : 'retry', reason };
  }
}
