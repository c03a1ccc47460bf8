import type { Claim } from '../../kube/objects.ts';
import { type ClaimCopy, type JobKey, sealedCopy } from '../../queue/contract.ts';
import type { WatchLifeReader } from '../../queue/watch-life.ts';
import { checkSeal, type RecordKeys } from '../../records/record-seal.ts';
import type { DriverPlace } from '../../redis/key-prefix.ts';
import { isFields, parseJson } from '../../runtime/json.ts';

/** Judges the copies of claims that jobs carry (invariant 1). */
export class ClaimCopyReader {
  readonly #life: Pick<WatchLifeReader, 'isAlive'>;
  readonly #place: DriverPlace;
  readonly #keys: () => RecordKeys | undefined;

  /** @param keys  what --record-key-file says now; undefined without the flag */
  constructor(
    life: Pick<WatchLifeReader, 'isAlive'>,
    place: DriverPlace,
    keys: () => RecordKeys | undefined,
  ) {
    this.#life = life;
    this.#place = place;
    this.#keys = keys;
  }

  /** The claim as the leader's watch has shown it, while that watch lives. It may be some seconds
   * old, so a volume may be made for a claim that was deleted a moment ago; the ordinary deletion
   * reclaims that. undefined: the claim has to be read. */
  async claimOf(key: JobKey, copy: ClaimCopy | undefined): Promise<Claim | undefined> {
    if (copy === undefined || !(await this.#life.isAlive(copy.watch))) return undefined;
    if (!this.#isSealed(key, copy)) return undefined;
    const claim = parseJson(copy.claim);
    return isClaimOf(key, claim) ? claim : undefined;
  }

  /** Where seals are asked for, a copy without the right one is not used. */
  #isSealed({ uid }: JobKey, { watch, claim, seal }: ClaimCopy): boolean {
    try {
      checkSeal(this.#keys(), sealedCopy({ ...this.#place, uid, watch, claim }), seal);
      return true;
    } catch {
      return false;
    }
  }
}

function isClaimOf({ uid, namespace, name }: JobKey, value: unknown): value is Claim {
  if (!isFields(value) || !isFields(value['metadata']) || !isFields(value['spec'])) return false;
  const { metadata } = value;
  return (
    metadata['uid'] === uid && metadata['namespace'] === namespace && metadata['name'] === name
  );
}
