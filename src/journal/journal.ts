import { performance } from 'node:perf_hooks';
import type { KubeClient } from '../kube/client.ts';
import { KubeError } from '../kube/kube-error.ts';
import type { Claim, Class, Lease } from '../kube/objects.ts';
import { apiVersionOf, leases } from '../kube/resources.ts';
import { messageOf } from '../runtime/error-message.ts';
import type { Logger } from '../runtime/log.ts';
import {
  decodeEntry,
  encodeEntry,
  encodeObject,
  entryBytes,
  type EntryText,
  type JournalEntry,
  journalName,
  journalNumber,
  readObject,
} from './journal-entry.ts';
import type { JournalPlace } from './list-journal.ts';

export interface JournalOptions extends JournalPlace {
  readonly client: Pick<KubeClient, 'list' | 'create' | 'update' | 'delete'>;
  /** Who writes, for people. */
  readonly holder: string;
  /** Called after entries were removed from the API server. */
  readonly onGone: (uids: readonly string[]) => void;
  readonly log: Logger;
}

/** A claim to add. */
export interface ClaimToNote {
  readonly claim: Claim;
  readonly cls: Class | undefined;
}

/** New entries go to the current object up to this size: the larger the object, the more a write
 * costs the API server. */
const APPEND_BYTES = 16_384;
/** The annotations of an object may have 256 KiB in all. */
const MAX_BYTES = 200 * 1_024;
/** How long a finished entry may stay in an object with unfinished entries. */
const LAZY_MS = 5_000;
/** One write removes all entries that finish within this time. */
const HASTE_MS = 100;
const MAX_CONFLICTS = 5;
const RULE =
  'apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, list, create, update]';

/** An entry, and since when this leader knows it, by performance.now(). */
type KnownEntry = EntryText & { readonly knownMs: number };

/** A Lease that holds entries. */
class JournalObject {
  /** The resourceVersion as last written or read; undefined: the object does not exist. */
  version: string | undefined;
  /** What the API server has, or is about to have. */
  readonly entries = new Map<string, KnownEntry>();
  /** Entries that the next write removes. */
  readonly finished = new Set<string>();
  /** Since when the oldest of them is finished, by performance.now(). */
  finishedMs = Infinity;
  /** Annotations that can't be read stay as they are. */
  unread: Readonly<Record<string, string>> = {};
  number: number;
  name: string;

  constructor(number: number, name: string) {
    this.number = number;
    this.name = name;
  }

  /** The size of the unfinished entries, their classes and the unread annotations. */
  get size(): Size {
    const size = new Size();
    for (const [key, text] of Object.entries(this.unread))
      size.bytes += Buffer.byteLength(key + text);
    for (const entry of this.entries.values()) if (!this.finished.has(entry.uid)) size.add(entry);
    return size;
  }
}

/** The size of entries that share their classes. */
class Size {
  bytes = 0;
  readonly #classes = new Set<string>();

  add(entry: EntryText): void {
    this.bytes += entryBytes(entry);
    if (entry.cls === undefined || this.#classes.has(entry.cls.id)) return;
    this.#classes.add(entry.cls.id);
    this.bytes += Buffer.byteLength(entry.cls.text) + 48;
  }
}

/** The journal of a driver, for its leader (docs/leak-proof.md, J1 to J3). An entry is in the API
 * server before the claim's first job is added, and is removed after that job is finished. One
 * write at a time; claims that come together share it. */
export class Journal {
  readonly #options: JournalOptions;
  readonly #objects = new Map<number, JournalObject>();
  /** Numbers of objects that belong to somebody else. */
  readonly #taken = new Set<number>();
  /** By claim: the object that has its entry. */
  readonly #byUid = new Map<string, JournalObject>();
  #current: JournalObject | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  /** Whether the next `tidy` removes all finished entries. */
  #isHasty = false;
  #transitions = -1;
  /** Whether this process leads, and may write. */
  #mayWrite: () => boolean = () => false;
  #isBeginning = false;
  #isOff = false;
  #mayDelete = true;
  readonly #told = new Set<string>();

  constructor(options: JournalOptions) {
    this.#options = options;
  }

  /** Why sutler works without the journal and, like upstream, may lose a volume: the account has no
   * right to Leases. Undefined while it has. */
  get trouble(): string | undefined {
    return this.#isOff
      ? `sutler works without its journal, and may lose a volume if it dies, like ` +
          `external-provisioner; grant this account, in the namespace ` +
          `${this.#options.namespace}: ${RULE}`
      : undefined;
  }

  /** Whether sutler works without the journal. */
  get isOff(): boolean {
    return this.#isOff;
  }

  /** The unfinished entries.
   * @param olderThanMs  only entries that this leader has known for longer */
  *unfinished(olderThanMs = 0): Generator<JournalEntry> {
    const latestMs = performance.now() - olderThanMs;
    for (const [uid, object] of this.#byUid) {
      const entry = object.entries.get(uid);
      if (entry !== undefined && entry.knownMs <= latestMs && !object.finished.has(uid))
        yield decodeEntry(entry);
    }
  }

  /** The claims with an unfinished entry. */
  unfinishedUids(): readonly string[] {
    return [...this.#byUid].flatMap(([uid, object]) => (object.finished.has(uid) ? [] : [uid]));
  }

  has(uid: string): boolean {
    return this.#byUid.has(uid);
  }

  /** Whether the claim's job is finished, and the entry will be removed. */
  isFinished(uid: string): boolean {
    return this.#byUid.get(uid)?.finished.has(uid) === true;
  }

  /** The object that has the claim's entry; '' without the journal. */
  objectOf(uid: string): string {
    return this.#byUid.get(uid)?.name ?? '';
  }

  /** J3: reads the journal, and writes each object that has entries once, after which no write of
   * an earlier leader can succeed. If there is no object, creates the first one, so that a missing
   * right is known at once.
   * @param transitions  the leader's term, for people
   * @param isLeader  called before each write
   * @returns the claims with an entry
   * @throws KubeError */
  begin(transitions: number, isLeader: () => boolean): Promise<readonly string[]> {
    return this.#inTurn(async () => {
      // Another leader may have led since, so this leader's knowledge is out of date.
      if (transitions !== this.#transitions) this.#clear();
      this.#transitions = transitions;
      this.#mayWrite = isLeader;
      this.#isBeginning = true;
      try {
        await this.#list();
        if (this.#objects.size === 0) this.#newObject();
        for (const object of this.#objects.values())
          if (object.entries.size > 0 || object.version === undefined) await this.#write(object);
        if (this.#isOff) this.#options.log.info({}, 'the journal can be written again');
        this.#isOff = false;
      } catch (error) {
        this.#switchOff(error);
      } finally {
        this.#isBeginning = false;
      }
      return [...this.#byUid.keys()];
    });
  }

  /** Stops all writes until the next `begin`, since this process no longer leads. */
  end(): void {
    this.#mayWrite = () => false;
  }

  /** Removes all finished entries. Resolves after one attempt. */
  flush(): Promise<void> {
    this.#isHasty = true;
    return this.tidy();
  }

  /** J1: adds entries for claims that have none. Resolves when the API server has them.
   * @throws KubeError */
  add(claims: readonly ClaimToNote[]): Promise<void> {
    return this.#inTurn(async () => {
      const entries = claims
        .filter(({ claim }) => !this.#byUid.has(claim.metadata.uid))
        .map(({ claim, cls }) => encodeEntry(claim, cls));
      if (this.#isOff || entries.length === 0) return;
      let rest: readonly EntryText[] = entries;
      try {
        while (rest.length > 0) rest = await this.#addSome(rest);
      } catch (error) {
        // If the write succeeded in spite of the error, the next list finds the entries.
        for (const { uid } of rest) this.#drop(uid);
        // The account may have the right to list Leases, but not to write them.
        this.#switchOff(error);
      }
    });
  }

  /** J2: marks the entries of finished jobs for removal with the next write. */
  finish(uids: readonly string[]): void {
    for (const uid of uids) {
      const object = this.#byUid.get(uid);
      if (object === undefined) continue;
      object.finished.add(uid);
      object.finishedMs = Math.min(object.finishedMs, performance.now());
    }
  }

  /** Removes finished entries soon, since somebody waits for that. */
  hasten(): void {
    if (this.#isHasty) return;
    this.#isHasty = true;
    setTimeout(() => void this.tidy(), HASTE_MS).unref();
  }

  /** Writes as many entries as fit into one object.
   * @returns the rest */
  async #addSome(entries: readonly EntryText[]): Promise<readonly EntryText[]> {
    const object = this.#objectForMore();
    let taken = 0;
    // Added up, since counting the whole object for each entry took most of the journal's time.
    const { size } = object;
    for (const entry of entries) {
      size.add(entry);
      if (size.bytes > MAX_BYTES && taken > 0) break;
      object.entries.set(entry.uid, { ...entry, knownMs: performance.now() });
      this.#byUid.set(entry.uid, object);
      taken += 1;
    }
    await this.#write(object);
    return entries.slice(taken);
  }

  #objectForMore(): JournalObject {
    if (this.#current === undefined || this.#current.size.bytes >= APPEND_BYTES)
      this.#current =
        [...this.#objects.values()].find(({ size }) => size.bytes < APPEND_BYTES) ??
        this.#newObject();
    return this.#current;
  }

  #newObject(): JournalObject {
    const number = this.#freeNumber();
    const object = new JournalObject(number, journalName(this.#options, number));
    this.#objects.set(number, object);
    return object;
  }

  #freeNumber(): number {
    let number = 0;
    while (this.#objects.has(number) || this.#taken.has(number)) number += 1;
    return number;
  }

  #drop(uid: string): void {
    this.#byUid.get(uid)?.entries.delete(uid);
    this.#byUid.delete(uid);
  }

  #clear(): void {
    this.#objects.clear();
    this.#byUid.clear();
    this.#current = undefined;
  }

  /** Writes an object without its finished entries. After a conflict with another process, lists
   * the journal, and writes the object from memory again.
   * @throws KubeError */
  async #write(object: JournalObject): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      const gone = [...object.finished];
      try {
        await this.#send(object);
        return this.#written(object, gone);
      } catch (error) {
        const isAgain = error instanceof KubeError && [404, 409].includes(error.code);
        if (!isAgain || tries === MAX_CONFLICTS) throw error;
        await this.#list();
      }
    }
  }

  #written(object: JournalObject, gone: readonly string[]): void {
    for (const uid of gone) object.finished.delete(uid);
    object.finishedMs = object.finished.size === 0 ? Infinity : performance.now();
    const left = gone.filter((uid) => object.entries.delete(uid));
    // If a claim has entries in two objects, the other entry stays.
    const ended = left.filter((uid) => this.#byUid.get(uid) === object);
    for (const uid of ended) this.#byUid.delete(uid);
    if (ended.length > 0) this.#options.onGone(ended);
  }

  async #send(object: JournalObject): Promise<void> {
    const { client, namespace } = this.#options;
    if (!this.#mayWrite()) throw new Error('this process no longer leads');
    const stay = [...object.entries.values()].filter(({ uid }) => !object.finished.has(uid));
    const { name, version } = object;
    const isEmpty = stay.length === 0 && Object.keys(object.unread).length === 0;
    const isNeeded = object.number === 0 && version === undefined;
    if (isEmpty && !isNeeded && (version === undefined || (await this.#delete(object)))) return;
    const lease = this.#leaseOf(object, stay);
    const written =
      version === undefined
        ? await client.create<Lease>(leases, namespace, lease)
        : await client.update<Lease>(leases, { namespace, name }, lease);
    object.version = written.metadata.resourceVersion;
  }

  /** Deletes an empty object, except the first one, which is needed most.
   * @returns false if it stays, because the account has no right to delete */
  async #delete(object: JournalObject): Promise<boolean> {
    const { client, namespace } = this.#options;
    const { name, number, version = '' } = object;
    if (number === 0 || !this.#mayDelete) return false;
    const preconditions = { resourceVersion: version };
    try {
      await client.delete(leases, { namespace, name }, { preconditions });
      object.version = undefined;
      return true;
    } catch (error) {
      if (!(error instanceof KubeError) || error.code !== 403) throw error;
      this.#mayDelete = false;
      return false;
    }
  }

  #leaseOf({ name, version, unread }: JournalObject, entries: readonly EntryText[]) {
    const { namespace, holder } = this.#options;
    return {
      apiVersion: apiVersionOf(leases),
      kind: leases.kind,
      metadata: {
        namespace,
        name,
        annotations: encodeObject(this.#options, entries, unread),
        ...(version === undefined ? {} : { resourceVersion: version }),
      },
      spec: { holderIdentity: holder, leaseTransitions: this.#transitions },
    };
  }

  /** Reads all objects, and adds to memory the entries that it does not have. */
  async #list(): Promise<void> {
    const { client, namespace } = this.#options;
    const { items } = await client.list<Lease>(leases, { namespace });
    for (const object of this.#objects.values()) object.version = undefined;
    this.#taken.clear();
    for (const lease of items) {
      const number = journalNumber(this.#options, lease.metadata.name);
      if (number !== undefined) this.#read(number, lease);
    }
  }

  #read(number: number, lease: Lease): void {
    const { name, resourceVersion } = lease.metadata;
    const read = readObject(this.#options, lease);
    if (read.kind === 'other') {
      this.#taken.add(number);
      this.#tell(name, `sutler does not use the journal object ${name}: ${read.reason}`);
      const ours = this.#objects.get(number);
      if (ours !== undefined) this.#rename(ours);
      return;
    }
    const object = this.#objects.get(number) ?? new JournalObject(number, name);
    this.#objects.set(number, object);
    object.version = resourceVersion;
    object.unread = Object.fromEntries(read.unread.map(({ key, text }) => [key, text]));
    for (const { key, reason } of read.unread)
      this.#tell(
        `${name} ${key}`,
        `an entry of the journal can't be read: ${reason}; run sutler audit, then remove it: ` +
          `kubectl annotate lease -n ${this.#options.namespace} ${name} ${key}-`,
      );
    for (const entry of read.entries) {
      if (!object.entries.has(entry.uid))
        object.entries.set(entry.uid, { ...entry, knownMs: performance.now() });
      // A claim may have entries in two objects: each of them keeps it.
      if (!this.#byUid.has(entry.uid)) this.#byUid.set(entry.uid, object);
      const isElsewhere = this.#byUid.get(entry.uid) !== object;
      if (isElsewhere && this.#isBeginning) object.finished.add(entry.uid);
    }
  }

  /** Gives an object a new name, because somebody else has its name. The next write creates it. */
  #rename(object: JournalObject): void {
    this.#objects.delete(object.number);
    object.number = this.#freeNumber();
    object.name = journalName(this.#options, object.number);
    object.unread = {};
    this.#objects.set(object.number, object);
  }

  #tell(what: string, message: string): void {
    if (this.#told.has(message)) return;
    this.#told.add(message);
    this.#options.log.warn({ object: what }, message);
  }

  /** Writes the objects with entries to remove; the caller calls this every second. Never rejects.
   */
  tidy(): Promise<void> {
    const isHasty = this.#isHasty;
    const due = [...this.#objects.values()].filter((object) => {
      if (object.finished.size === 0) return false;
      const isAll = object.finished.size === object.entries.size;
      return isAll || isHasty || performance.now() - object.finishedMs > LAZY_MS;
    });
    this.#isHasty = false;
    if (due.length === 0 || this.#isOff || !this.#mayWrite()) return Promise.resolve();
    return this.#inTurn(async () => {
      for (const object of due) if (object.finished.size > 0) await this.#write(object);
    }).catch((error: unknown) => {
      this.#isHasty ||= isHasty;
      this.#options.log.debug(
        { err: error },
        'could not remove finished entries from the journal; trying again',
      );
    });
  }

  /** Continues without the journal, if the account has no right to Leases.
   * @throws any other error */
  #switchOff(error: unknown): void {
    if (!(error instanceof KubeError) || error.code !== 403) throw error;
    // Forgets the entries; `begin` finds them when the right is granted.
    this.#clear();
    const isNews = !this.#isOff;
    this.#isOff = true;
    if (isNews) this.#options.log.warn({ reason: messageOf(error) }, this.trouble);
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#turn.then(work, work);
    this.#turn = next.catch(() => undefined);
    return next;
  }
}
