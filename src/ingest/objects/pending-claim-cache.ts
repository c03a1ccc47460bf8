import { CLAIM_FINALIZER } from '../../kube/keys.ts';
import type { ObjectSink } from '../../kube/list-watch.ts';
import type { Claim } from '../../kube/objects.ts';
import { type Change, passOn, transformOrSkip } from '../../kube/reflector.ts';
import { claims, keyOf, rawKey } from '../../kube/resources.ts';
import type { Logger } from '../../runtime/log.ts';
import { hasFinalizer } from '../../volumes/finalizer-patches.ts';
import { isPending, isTerminatingCloneSource } from '../../volumes/data-source.ts';
import type { FollowedVersions } from './followed-versions.ts';
import { transformClaim } from './transforms.ts';

/** A change of an object of which the earlier state may not have been kept. */
export interface KeptChange<T> extends Change<T> {
  /** Whether it was modified, although its earlier state is not known. */
  readonly isModified?: boolean;
}

export interface PendingClaimCacheOptions {
  readonly followed: FollowedVersions;
  readonly onChange: (change: KeptChange<Claim>) => void;
  readonly log: Logger;
}

/** The claims that may need a job, of any driver. The others, nearly all, need none until they
 * change, so nothing is kept of them. */
export class PendingClaimCache implements ObjectSink {
  readonly #options: PendingClaimCacheOptions;
  readonly #log: Logger;
  readonly #kept = new Map<string, Claim>();
  /** Keys of kept claims that the list under way did not contain so far. */
  #unlisted = new Set<string>();

  constructor(options: PendingClaimCacheOptions) {
    this.#options = options;
    this.#log = options.log.child({ resource: claims.plural });
  }

  get size(): number {
    return this.#kept.size;
  }

  get(key: string): Claim | undefined {
    return this.#kept.get(key);
  }

  list(): IterableIterator<Claim> {
    return this.#kept.values();
  }

  beginList(): void {
    this.#options.followed.beginList();
    this.#unlisted = new Set(this.#kept.keys());
  }

  put(raw: unknown, how: 'listed' | 'added' | 'modified'): void {
    const object = this.#transform(raw);
    if (object === undefined) return;
    const key = keyOf(object.metadata);
    const { uid, resourceVersion } = object.metadata;
    this.#unlisted.delete(key);
    this.#options.followed.changed(key, resourceVersion);
    const known = this.#kept.get(key);
    if (known?.metadata.uid === uid && known.metadata.resourceVersion === resourceVersion) return;
    if (known !== undefined && known.metadata.uid !== uid) this.#drop(key);
    const previous = this.#kept.get(key);
    if (mayNeedJob(object)) this.#kept.set(key, object);
    else this.#kept.delete(key);
    if (previous !== undefined) this.#report({ type: 'modified', object, previous });
    else this.#report({ type: 'added', object, isModified: how === 'modified' });
  }

  remove(raw: unknown): void {
    const key = rawKey(raw);
    if (key === undefined) return;
    this.#options.followed.changed(key, '');
    this.#drop(key);
  }

  endList(): void {
    for (const key of this.#unlisted) this.#drop(key);
    this.#unlisted.clear();
    this.#options.followed.endList();
  }

  #drop(key: string): void {
    const object = this.#kept.get(key);
    if (!this.#kept.delete(key) || object === undefined) return;
    this.#report({ type: 'deleted', object, previous: object });
  }

  #transform(raw: unknown): Claim | undefined {
    return transformOrSkip(raw, transformClaim, this.#log);
  }

  #report(change: KeptChange<Claim>): void {
    passOn(change, this.#options.onChange, this.#log);
  }
}

/** Whether a claim may need a job as it is, or because another object changes. One that names its
 * volume needs one only if it has a finalizer that a job removes. */
function mayNeedJob(claim: Claim): boolean {
  return (
    (claim.spec.volumeName ?? '') === '' ||
    isPending(claim) ||
    hasFinalizer(claim, CLAIM_FINALIZER) ||
    isTerminatingCloneSource(claim)
  );
}
