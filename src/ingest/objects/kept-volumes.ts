import type { ObjectSink } from '../../kube/list-watch.ts';
import type { Volume } from '../../kube/objects.ts';
import { passOn, transformOrSkip } from '../../kube/reflector.ts';
import { rawKey, volumes } from '../../kube/resources.ts';
import type { HandleSharers } from '../../records/shared-handles.ts';
import type { Logger } from '../../runtime/log.ts';
import { shouldDelete } from '../../volumes/deletion.ts';
import type { DriverNames } from '../../volumes/driver-facts.ts';
import { identityOf, mayBeSame, type VolumeIdentity } from '../../volumes/handles.ts';
import type { FollowedVersions } from './followed-versions.ts';
import type { KeptChange } from './pending-claim-cache.ts';
import { transformVolume } from './transforms.ts';
import { VolumeIndex, type IndexChange } from './volume-index.ts';

export interface KeptVolumesOptions {
  /** The drivers that are served now. */
  readonly drivers: () => readonly DriverNames[];
  readonly followed: FollowedVersions;
  /** Asked to read a PV that may share its handle, and to pass it to `wasRead`. */
  readonly read: (name: string) => void;
  /** Called after a change, not while a list is under way. */
  readonly onChange: (change: KeptChange<Volume>) => void;
  /** Called for a kept PV, unchanged itself, that no longer shares its handle with another. */
  readonly onHandleFreed: (volume: Volume) => void;
  /** Called when it changed which PVs share a handle. */
  readonly onSharing: () => void;
  /** Called when a list is complete. */
  readonly onListed: (o: {
    /** Whether a claim had a volume before the list. */
    readonly hadVolume: (claimUid: string) => boolean;
    /** The drivers for which the list is complete. */
    readonly drivers: readonly DriverNames[];
  }) => void;
  readonly log: Logger;
  /** As in VolumeIndex. */
  readonly hash?: (text: string) => number;
}

/** What is known of all PVs at one time. */
interface View {
  readonly index: VolumeIndex;
  /** Those that need a job, or that may share their handle. */
  readonly kept: Map<string, Volume>;
  /** Names of PVs that may share their handle and are not at hand yet; a few may not do so any
   * more. */
  readonly unread: Set<string>;
  /** The drivers to which this applies. */
  readonly drivers: readonly DriverNames[];
}

/** The PVs: a name and a number of each, and those as objects that need a job of a served driver or
 * may share their handle with another. Where the numbers of two are alike, the one that was not
 * kept is read again; until then neither is deleted. */
export class KeptVolumes implements ObjectSink {
  readonly #options: KeptVolumesOptions;
  readonly #log: Logger;
  #view: View;
  /** What the list under way has shown. */
  #next: View | undefined;

  constructor(options: KeptVolumesOptions) {
    this.#options = options;
    this.#log = options.log.child({ resource: volumes.plural });
    this.#view = this.#emptyView();
  }

  get size(): number {
    return this.#view.kept.size;
  }

  /** Whether a list has begun, so that a driver that is served later needs another. */
  hasListBegun = false;

  get(name: string): Volume | undefined {
    return this.#view.kept.get(name);
  }

  list(): IterableIterator<Volume> {
    return this.#view.kept.values();
  }

  hasVolume(claimUid: string): boolean {
    return this.#view.index.hasVolume(claimUid);
  }

  /** Whether all PVs are at hand that may have the handle of this one. */
  isComparable({ metadata }: Volume): boolean {
    const { index, unread } = this.#view;
    const group = unread.size === 0 ? undefined : index.groupOf(metadata.name);
    if (group === undefined) return true;
    // There may be thousands of either.
    const [fewer, more] = group.size < unread.size ? [group, unread] : [unread, group];
    for (const name of fewer) if (more.has(name)) return false;
    return true;
  }

  /** Another PV that may stand for the same volume, by its name. */
  findOther(volume: Volume): string | undefined {
    const { index, kept } = this.#view;
    // Thousands of PVs may stand for one shared file system.
    for (const name of index.groupOf(volume.metadata.name) ?? []) {
      const other = name === volume.metadata.name ? volume : kept.get(name);
      if (other !== volume && (other === undefined || mayBeSame(other, volume))) return name;
    }
    return undefined;
  }

  /** The PVs of a driver by each handle that several of them name. One that is not read yet counts
   * for each handle that it may have. */
  sharedOf(driver: string): HandleSharers {
    const shared = new Map<string, string[]>();
    const { index, kept } = this.#view;
    for (const names of index.groups()) {
      const unread = [...names].filter((name) => !kept.has(name));
      const ids = new Map<string, string[]>();
      for (const name of names) {
        const volume = kept.get(name);
        const identity = volume === undefined ? undefined : identityOf(volume);
        if (identity?.driver !== driver) continue;
        const sharing = ids.get(identity.id);
        if (sharing === undefined) ids.set(identity.id, [name, ...unread]);
        else sharing.push(name);
      }
      for (const [id, sharing] of ids) if (sharing.length > 1) shared.set(id, sharing);
    }
    return shared;
  }

  /** Forgets the objects that no driver needs any more. */
  driversChanged(): void {
    const view = this.#view;
    for (const [name, volume] of view.kept)
      if (!this.#mustKeep(volume, view)) view.kept.delete(name);
  }

  beginList(): void {
    this.hasListBegun = true;
    this.#options.followed.beginList();
    this.#next = this.#emptyView();
  }

  put(raw: unknown, how: 'listed' | 'added' | 'modified'): void {
    const volume = this.#transform(raw);
    if (volume === undefined) return;
    this.#options.followed.changed(volume.metadata.name, volume.metadata.resourceVersion);
    if (this.#next !== undefined) this.#store(volume, this.#next);
    else this.#change(volume, how);
  }

  remove(raw: unknown): void {
    const name = rawKey(raw);
    if (name === undefined) return;
    this.#options.followed.changed(name, '');
    const view = this.#next ?? this.#view;
    const isKnown = view.index.has(name);
    const previous = view.kept.get(name);
    const change = view.index.remove(name);
    view.kept.delete(name);
    view.unread.delete(name);
    if (this.#next !== undefined || !isKnown) return;
    this.#handleSharing(change);
    const object = this.#transform(raw) ?? previous;
    if (object !== undefined)
      this.#report({ type: 'deleted', object, ...(previous === undefined ? {} : { previous }) });
  }

  /** Goes on with what the list has shown. What a PV means that was not kept before can't be told
   * from what it was, so it counts as new. */
  endList(): void {
    const next = this.#next ?? this.#emptyView();
    const before = this.#view;
    this.#view = next;
    this.#next = undefined;
    this.#options.followed.endList();
    this.#readUnread(next);
    this.#options.onSharing();
    for (const object of next.kept.values()) {
      const previous = before.kept.get(object.metadata.name);
      if (previous?.metadata.uid !== object.metadata.uid) this.#report({ type: 'added', object });
      else if (previous.metadata.resourceVersion === object.metadata.resourceVersion)
        this.#options.onHandleFreed(object);
      else this.#report({ type: 'modified', object, previous });
    }
    const hadVolume = (claimUid: string): boolean => before.index.hasVolume(claimUid);
    this.#options.onListed({ hadVolume, drivers: next.drivers });
  }

  /** A PV was read because it may share its handle; undefined: it does not exist, which the watch
   * will report too. */
  wasRead(name: string, raw: unknown): void {
    const { index, kept } = this.#view;
    if (raw === undefined || kept.has(name) || index.groupOf(name) === undefined) return;
    const volume = this.#transform(raw);
    if (volume !== undefined) this.#change(volume, 'modified');
  }

  #emptyView(): View {
    const { drivers, hash } = this.#options;
    return {
      index: new VolumeIndex(hash),
      kept: new Map(),
      unread: new Set(),
      drivers: drivers(),
    };
  }

  #change(object: Volume, how: 'listed' | 'added' | 'modified'): void {
    const { name, uid, resourceVersion } = object.metadata;
    const known = this.#view.kept.get(name);
    if (known?.metadata.uid === uid && known.metadata.resourceVersion === resourceVersion) return;
    const previous = known?.metadata.uid === uid ? known : undefined;
    if (known !== previous) this.#report({ type: 'deleted', object: known ?? object });
    const isUnread = known === undefined && this.#view.index.groupOf(name) !== undefined;
    this.#handleSharing(this.#store(object, this.#view));
    if (previous !== undefined) this.#report({ type: 'modified', object, previous });
    else {
      const isModified = how === 'modified' && known === undefined;
      this.#report({ type: 'added', object, isModified });
    }
    if (isUnread) this.#freeGroup(name);
  }

  /** Those that may have the handle of a PV can be compared with it now. */
  #freeGroup(name: string): void {
    this.#options.onSharing();
    for (const other of this.#view.index.groupOf(name) ?? []) if (other !== name) this.#free(other);
  }

  #store(volume: Volume, view: View): IndexChange {
    const { name } = volume.metadata;
    const change = view.index.put(volume, this.#identityOf(volume));
    view.unread.delete(name);
    if (this.#mustKeep(volume, view)) view.kept.set(name, volume);
    else view.kept.delete(name);
    return change;
  }

  /** Handles of drivers that are not served are not compared. */
  #identityOf(volume: Volume): VolumeIdentity | undefined {
    const identity = identityOf(volume);
    const isServed = this.#options.drivers().some(({ name }) => name === identity?.driver);
    return isServed ? identity : undefined;
  }

  #mustKeep(volume: Volume, { index }: View): boolean {
    if (index.groupOf(volume.metadata.name) !== undefined) return true;
    return this.#options.drivers().some((driver) => shouldDelete(volume, driver).kind !== 'ignore');
  }

  #handleSharing({ left, joined, changesSharing }: IndexChange): void {
    if (joined !== undefined && !this.#view.kept.has(joined)) this.#wantRead(joined, this.#view);
    for (const name of left) this.#free(name);
    if (changesSharing) this.#options.onSharing();
  }

  /** Triages a PV again that shared its handle, and forgets it if it needs no job. */
  #free(name: string): void {
    const volume = this.#view.kept.get(name);
    if (volume === undefined) return;
    if (!this.#mustKeep(volume, this.#view)) this.#view.kept.delete(name);
    this.#options.onHandleFreed(volume);
  }

  /** Only the first of several PVs of one handle was not kept as it was listed. */
  #readUnread(view: View): void {
    for (const names of view.index.groups())
      for (const name of names) if (!view.kept.has(name)) this.#wantRead(name, view);
  }

  #wantRead(name: string, { unread }: View): void {
    unread.add(name);
    this.#options.read(name);
  }

  #transform(raw: unknown): Volume | undefined {
    return transformOrSkip(raw, transformVolume, this.#log);
  }

  #report(change: KeptChange<Volume>): void {
    passOn(change, this.#options.onChange, this.#log);
  }
}
