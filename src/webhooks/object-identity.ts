import { isFields } from '../runtime/json.ts';
import type { ChangeNotice } from './notices.ts';
import { badField } from './problem.ts';

/** What an event says: a notice, or why it is accepted and nothing is done about it. */
export type Verdict = ChangeNotice | IgnoredReason;

export type IgnoredReason = 'other-kind' | 'other-group' | 'other-type' | 'no-object' | 'dry-run';

/** What an event says, and how it is told from others. */
export interface ReadEvent {
  readonly verdict: Verdict;
  /** The same in each repetition of this event; absent if it has no id. */
  readonly eventId?: string;
}

/** Joins the source and the id of an event, so that no other pair gives the same text. */
export function eventIdOf(source: string, id: string): string {
  return `${source.length} ${source} ${id}`;
}

const RESOURCES: Readonly<Record<string, ChangeNotice['resource']>> = {
  PersistentVolumeClaim: 'persistentvolumeclaims',
  PersistentVolume: 'persistentvolumes',
};

const NAMESPACE = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const NAME = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const MAX_NAME = 253;

/** What names an object, as an event says it. */
interface Identity {
  readonly apiVersion: unknown;
  readonly kind: unknown;
  readonly namespace: unknown;
  readonly name: unknown;
}

/** The resource of a kind in the core group; undefined for kinds that sutler does not serve. */
function resourceOf(kind: unknown): ChangeNotice['resource'] | undefined {
  return typeof kind === 'string' && Object.hasOwn(RESOURCES, kind) ? RESOURCES[kind] : undefined;
}

/** What an event says that has a whole object.
 * @param path  where the object is
 * @throws RequestProblem as judgeIdentity, and for what is no object, or one without metadata */
export function judgeObject(object: unknown, path: string): Verdict {
  if (!isFields(object)) throw badField(path, 'it must be a JSON object, the Kubernetes object');
  const { apiVersion, kind, metadata } = object;
  if (!isFields(metadata) && apiVersion === 'v1' && resourceOf(kind) !== undefined)
    throw badField(`${path}.metadata`, 'it must be a JSON object with the name of the object');
  const { name, namespace } = isFields(metadata) ? metadata : {};
  return judgeIdentity({ apiVersion, kind, namespace, name }, `${path}.`, `${path}.metadata.`);
}

/** What an event says that only refers to its object.
 * @throws RequestProblem as judgeIdentity */
export function judgeReference(reference: unknown, path: string): Verdict {
  if (!isFields(reference))
    throw badField(path, 'it must be a JSON object: kind, namespace, name and apiVersion');
  const { apiVersion, kind, namespace, name } = reference;
  return judgeIdentity({ apiVersion, kind, namespace, name }, `${path}.`);
}

/** What an event about this object says: a notice, if the object is of a kind that sutler serves.
 * @param at      where kind and apiVersion are, for problems
 * @param nameAt  where namespace and name are
 * @throws RequestProblem if a part of the identity is missing, or not legal in Kubernetes */
export function judgeIdentity(identity: Identity, at = '', nameAt = at): Verdict {
  const kind = requireText(identity.kind, `${at}kind`);
  const apiVersion = requireText(identity.apiVersion, `${at}apiVersion`);
  const resource = resourceOf(kind);
  if (resource === undefined) return 'other-kind';
  if (apiVersion !== 'v1') return 'other-group';
  const name = requireText(identity.name, `${nameAt}name`);
  if (name.length > MAX_NAME || !NAME.test(name))
    throw badField(`${nameAt}name`, 'it is no legal name of a Kubernetes object (a DNS subdomain)');
  if (resource === 'persistentvolumes') return { resource, namespace: '', name };
  const namespace = requireText(identity.namespace, `${nameAt}namespace`);
  if (!NAMESPACE.test(namespace))
    throw badField(`${nameAt}namespace`, 'it is no legal name of a namespace (a DNS label)');
  return { resource, namespace, name };
}

function requireText(value: unknown, field: string): string {
  if (value === undefined || value === null || value === '')
    throw badField(field, 'it is missing: an event must name its object');
  if (typeof value !== 'string') throw badField(field, 'it must be a string');
  return value;
}
