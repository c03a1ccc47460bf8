import type { HintStore } from '../../capacity/hint-store.ts';
import { itemOfRequest } from '../../capacity/requested-bytes.ts';
import type { VolumeSpec } from '../../kube/objects.ts';
import type { VolumeRequest } from '../../records/stored-request.ts';
import type { Logger } from '../../runtime/log.ts';
import { type CapacityHint, volumeHints } from '../../volumes/capacity/hints.ts';

/** Tells the leading ingest that capacity may have changed. Never rejects and takes no time of the
 * run: a hint that is lost is made up for by the next poll. */
export interface CapacityHints {
  /** A creation is about to be sent. */
  creationBegins(stored: VolumeRequest): void;
  /** A creation failed, or its end is unknown. */
  creationFailed(stored: VolumeRequest): void;
  /** The driver created or deleted this volume. */
  volumeChanged(spec: Pick<VolumeSpec, 'nodeAffinity' | 'storageClassName'>): void;
}

/** Without --enable-capacity. */
export const NO_CAPACITY_HINTS: CapacityHints = {
  creationBegins: () => undefined,
  creationFailed: () => undefined,
  volumeChanged: () => undefined,
};

/** Stores the hints in Redis.
 * @param o.isMinusInFlight  value of --capacity-minus-in-flight, with which the beginning of a
 *   creation changes what is published */
export function createCapacityHints(
  store: Pick<HintStore, 'add'>,
  o: { readonly isMinusInFlight: boolean; readonly log: Logger },
): CapacityHints {
  const { isMinusInFlight, log } = o;
  const add = (hints: readonly CapacityHint[]): void => {
    store
      .add(hints)
      .catch((error: unknown) => log.debug({ err: error }, 'lost a hint about capacity'));
  };
  return {
    creationBegins(stored) {
      if (!isMinusInFlight) return;
      add([{ kind: 'segment', segment: itemOfRequest(stored).segment }]);
    },
    creationFailed({ skeleton }) {
      add([{ kind: 'class', className: skeleton.volume.spec.storageClassName ?? '' }]);
    },
    volumeChanged(spec) {
      const { hints, complaints } = volumeHints(spec);
      for (const reason of complaints)
        log.warn({ reason }, 'a term of a volume’s node affinity names no segment');
      add(hints);
    },
  };
}
