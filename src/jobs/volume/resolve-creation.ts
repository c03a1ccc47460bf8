import type { Volume } from '../../kube/objects.ts';
import type { Run } from '../../queue/consumer.ts';
import type { Outcome } from '../../queue/outcome.ts';
import { compareVolumes } from '../../volumes/handles.ts';
import { completeVolume } from '../../volumes/persistent-volume.ts';
import { openingOf, withGateway } from '../attempt.ts';
import type { Attempt } from '../attempt.ts';
import { callCreateVolume } from '../claim/call-create-volume.ts';
import type { ProcessorPorts } from '../ports.ts';
import { deleteDuplicateVolume } from '../claim/store-volume.ts';

/** A creation of this volume is open, or ended without an answer once: only its success proves that
 * nothing of it is still at work (design §3 rule 5). The PV is there already, so the answer is only
 * compared with it. */
export async function resolveCreation(
  ports: ProcessorPorts,
  found: {
    readonly attempt: Attempt;
    readonly volume: Volume;
    readonly run: Pick<Run, 'lastReason'>;
    readonly isOpen: boolean;
  },
): Promise<Outcome> {
  const { attempt, volume, run, isOpen } = found;
  const opened = await (isOpen
    ? ports.records.openExisting(attempt.id, openingOf(attempt))
    : ports.records.openResolve(attempt.id, openingOf(attempt)));
  if (opened.kind === 'busy')
    return { kind: 'running', reason: `another run is at this volume (${opened.state})` };
  if (opened.kind === 'not-yet')
    return { kind: 'later', reason: opened.reason, delayMs: opened.waitMs };
  if (opened.kind !== 'replay')
    return { kind: 'later', reason: 'the volume record changed meanwhile', delayMs: 0 };
  const outcome = await callCreateVolume(ports, {
    attempt: withGateway(attempt, opened.stored.endpoint),
    claim: undefined,
    run,
    stored: opened.stored,
    replayed: opened,
    keep: async (_, made) => {
      if (compareVolumes(volume, completeVolume(made.skeleton, made.answer)) !== 'same')
        return deleteDuplicateVolume(ports, made, volume);
      await ports.records.closeStored(attempt.id, attempt.owner, 'answered');
      return { kind: 'done' };
    },
  });
  return outcome.kind === 'done'
    ? { kind: 'later', reason: 'the creation is resolved; the deletion follows', delayMs: 0 }
    : outcome;
}
