import { hash } from 'node:crypto';
import * as keys from '../kube/keys.ts';
import type { Claim, Class, Lease } from '../kube/objects.ts';
import { isFields, parseJson } from '../runtime/json.ts';

/* What the journal stores about a claim, and its format in a Lease's annotations. Pure. */

/** A claim whose volume sutler may be creating, with what planning needs after the claim is gone.
 */
export interface JournalEntry {
  readonly uid: string;
  /** The claim at the time when its job was added. */
  readonly claim: Claim;
  /** Undefined if the claim had no class. */
  readonly cls: Class | undefined;
}

/** Version of the format. */
const VERSION = '1';
const DOMAIN = 'sutler.dev/';
const VERSION_KEY = 'sutler.dev/journal-version';
/** The driver's name, since two drivers' Leases may have the same name. */
const DRIVER_KEY = 'sutler.dev/driver';
const NODE_KEY = 'sutler.dev/node';
const ENTRY_PREFIX = 'journal.sutler.dev/';
const CLASS_PREFIX = 'class.journal.sutler.dev/';

/** Whose journal it is. */
export interface JournalOwner {
  readonly driver: string;
  /** The name of the driver's Lease. */
  readonly lease: string;
  /** Set if each node has its own process. */
  readonly node?: string | undefined;
}

const MAX_NAME = 253;

/** The name of a journal object: the Lease's name, the node if there is one, and a number. A name
 * that would be too long ends in a digest. */
export function journalName({ lease, node }: JournalOwner, number: number): string {
  const base = node === undefined ? `${lease}-journal` : `${lease}-journal-${node}`;
  const end = `-${number}`;
  if (base.length + end.length <= MAX_NAME) return base + end;
  const digest = hash('sha256', base).slice(0, 16);
  return `${base.slice(0, MAX_NAME - end.length - digest.length - 1)}-${digest}${end}`;
}

/** The number of a journal object of this owner; undefined for another Lease. */
export function journalNumber(owner: JournalOwner, name: string): number | undefined {
  const number = Number(/-(\d{1,4})$/.exec(name)?.[1] ?? NaN);
  return journalName(owner, number) === name ? number : undefined;
}

/** Whether a Lease is a journal object of the driver, on any node: by its annotation, or by its
 * name if somebody removed the annotation. */
export function isJournalOf({ driver, lease }: Omit<JournalOwner, 'node'>, { metadata }: Lease) {
  const { name, annotations = {} } = metadata;
  return VERSION_KEY in annotations && DRIVER_KEY in annotations
    ? annotations[DRIVER_KEY] === driver
    : journalNumber({ driver, lease }, name) !== undefined;
}

/** The node whose process writes a journal object; undefined if the driver has one journal. */
export function journalNode({ metadata }: Lease): string | undefined {
  return metadata.annotations?.[NODE_KEY];
}

/** Annotations that planning reads, besides those that a class names. */
const PLANNING_ANNOTATIONS: readonly string[] = [
  keys.STORAGE_PROVISIONER,
  keys.BETA_STORAGE_PROVISIONER,
  keys.BETA_STORAGE_CLASS,
  keys.SELECTED_NODE,
  keys.ALPHA_SELECTED_NODE,
  keys.MIGRATED_TO,
];

/** The text that a class's template resolves to has at most 253 characters. */
const MAX_VALUE = 340;

/** The part of a claim that planning needs. Keeps the annotations that planning reads, and those
 * that the class names in its templates of secrets. */
export function claimForPlanning(claim: Claim, cls: Class | undefined): Claim {
  const { name, namespace, uid, resourceVersion, annotations = {} } = claim.metadata;
  const templates = Object.values(cls?.parameters ?? {}).join(' ');
  const kept = Object.entries(annotations).filter(
    ([key, value]) =>
      value.length <= MAX_VALUE &&
      (PLANNING_ANNOTATIONS.includes(key) || templates.includes(`pvc.annotations['${key}']`)),
  );
  return {
    metadata: { name, namespace, uid, resourceVersion, annotations: Object.fromEntries(kept) },
    spec: claim.spec,
  } as Claim;
}

/** The part of a class that planning needs. */
function classForPlanning(cls: Class): unknown {
  const { metadata, provisioner, parameters, reclaimPolicy, mountOptions, volumeBindingMode } = cls;
  const { name, uid, resourceVersion } = metadata;
  return {
    metadata: { name, uid, resourceVersion },
    provisioner,
    parameters,
    reclaimPolicy,
    mountOptions,
    volumeBindingMode,
    allowedTopologies: cls.allowedTopologies,
  };
}

/** An entry as it is written. */
export interface EntryText {
  readonly uid: string;
  readonly text: string;
  /** The class and its digest, by which entries share it. */
  readonly cls: { readonly id: string; readonly text: string } | undefined;
}

/** Writes an entry. */
export function encodeEntry(claim: Claim, cls: Class | undefined): EntryText {
  const planning = claimForPlanning(claim, cls);
  const classText = cls === undefined ? undefined : JSON.stringify(classForPlanning(cls));
  const ofClass = classText === undefined ? undefined : { id: idOf(classText), text: classText };
  const text = JSON.stringify({
    ...(ofClass === undefined ? {} : { class: ofClass.id }),
    claim: planning,
  });
  return { uid: claim.metadata.uid, text, cls: ofClass };
}

function idOf(text: string): string {
  return hash('sha256', text).slice(0, 16);
}

/** How many bytes an entry adds to the annotations of an object, without its class. */
export function entryBytes({ uid, text }: EntryText): number {
  return ENTRY_PREFIX.length + uid.length + Buffer.byteLength(text);
}

/** The annotations of a journal object.
 * @param unread  annotations that could not be read; they stay as they are */
export function encodeObject(
  { driver, node }: JournalOwner,
  entries: Iterable<EntryText>,
  unread: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  const annotations: Record<string, string> = {
    ...unread,
    [DRIVER_KEY]: driver,
    [VERSION_KEY]: VERSION,
    ...(node === undefined ? {} : { [NODE_KEY]: node }),
  };
  for (const { uid, text, cls } of entries) {
    annotations[ENTRY_PREFIX + uid] = text;
    if (cls !== undefined) annotations[CLASS_PREFIX + cls.id] = cls.text;
  }
  return annotations;
}

/** What a journal object says. */
export type ReadObject =
  | {
      readonly kind: 'journal';
      readonly entries: readonly EntryText[];
      /** Annotations that can't be read, and what is wrong with each. */
      readonly unread: readonly { readonly key: string; text: string; reason: string }[];
    }
  /** Of another driver, node or version: sutler does not change it. */
  | { readonly kind: 'other'; readonly reason: string };

/** Reads the annotations of a journal object; never throws. */
export function readObject(owner: JournalOwner, { metadata, spec }: Lease): ReadObject {
  const { annotations = {} } = metadata;
  const reason = whyOther(owner, annotations, spec?.holderIdentity);
  if (reason !== undefined) return { kind: 'other', reason };
  const entries: EntryText[] = [];
  const unread: { readonly key: string; text: string; reason: string }[] = [];
  for (const [key, text] of Object.entries(annotations)) {
    if (!key.startsWith(ENTRY_PREFIX)) continue;
    const uid = key.slice(ENTRY_PREFIX.length);
    const entry = readEntry(uid, text, annotations);
    if (typeof entry === 'string') unread.push({ key, text, reason: entry });
    else entries.push(entry);
  }
  return { kind: 'journal', entries, unread };
}

/** @returns undefined if the object is this owner's. A Lease without annotations of sutler was
 *   edited by hand, or is another program's with the same name */
function whyOther(
  owner: JournalOwner,
  annotations: Readonly<Record<string, string>>,
  holder = '',
): string | undefined {
  if (holder !== '' && !Object.keys(annotations).some((key) => key.includes(DOMAIN)))
    return `${holder} holds it, and it has no annotation of sutler`;
  const { [DRIVER_KEY]: driver = owner.driver, [NODE_KEY]: node = owner.node } = annotations;
  const { [VERSION_KEY]: version = VERSION } = annotations;
  if (driver !== owner.driver) return `it is of driver ${driver}`;
  if (node !== owner.node) return `it is of node ${node ?? ''}`;
  return version === VERSION ? undefined : `its version is ${version}, not ${VERSION}`;
}

/** @returns what is wrong with an entry that can't be read */
function readEntry(
  uid: string,
  text: string,
  annotations: Readonly<Record<string, string>>,
): EntryText | string {
  const fields = parseJson(text);
  if (!isFields(fields) || !isClaimOf(uid, fields['claim'])) return 'it is no claim of that UID';
  const id = fields['class'];
  if (id === undefined) return { uid, text, cls: undefined };
  if (typeof id !== 'string') return 'its class is not text';
  const classText = annotations[CLASS_PREFIX + id];
  // The claim can be planned without this class if the class still exists.
  if (classText === undefined || !isFields(parseJson(classText)))
    return { uid, text, cls: undefined };
  return { uid, text, cls: { id, text: classText } };
}

function isClaimOf(uid: string, value: unknown): value is Claim {
  if (!isFields(value) || !isFields(value['metadata']) || !isFields(value['spec'])) return false;
  const { metadata } = value;
  return (
    metadata['uid'] === uid &&
    typeof metadata['name'] === 'string' &&
    typeof metadata['namespace'] === 'string'
  );
}

/** Decodes an entry that readObject or encodeEntry returned. */
export function decodeEntry({ uid, text, cls }: EntryText): JournalEntry {
  const { claim } = parseJson(text) as { readonly claim: Claim };
  return { uid, claim, cls: cls === undefined ? undefined : (parseJson(cls.text) as Class) };
}
