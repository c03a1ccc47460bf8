import { isFields } from '../runtime/json.ts';
import type { ChangeNotice } from './notices.ts';
import { badField } from './problem.ts';

/** What an event says: a notice, or why sutler accepts the event but ignores it. */
export type Verdict = ChangeNotice | IgnoredReason;

export type IgnoredReason = 'other-kind' | 'other-group' | 'other-type' | 'no-object' | 'dry-run';

/** What an event says, and its id. */
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

export type IdentityPart = 'apiVersion' | 'kind' | 'namespace' | 'name';

/** The parts of an event that name its object. */
export interface Identity extends Readonly<Record<IdentityPart, unknown>> {
  /** Where each part is, for problems. */
  readonly fieldOf: (part: IdentityPart) => string;
}

/** The resource of a kind in the core group; undefined for kinds that sutler does not serve. */
export function resourceOf(kind: unknown): ChangeNotice['resource'] | undefined {
  return typeof kind === 'string' && Object.hasOwn(RESOURCES, kind) ? RESOURCES[kind] : undefined;
}

/** The identity of a whole object.
 * @param path  where the object is
 * @throws RequestProblem if it is no object, or is a claim or volume without metadata */
export function identityOfObject(object: unknown, path: string): Identity {
  if (!isFields(object)) throw badField(path, 'it must be a JSON object, the Kubernetes object');
  const { apiVersion, kind, metadata } = object;
  if (!isFields(metadata) && apiVersion === 'v1' && resourceOf(kind) !== undefined)
    throw badField(`${path}.metadata`, 'it must be a JSON object with the name of the object');
  const { name, namespace } = isFields(metadata) ? metadata : {};
  const fieldOf = (part: IdentityPart): string =>
    `${path}.${part === 'name' || part === 'namespace' ? `metadata.${part}` : part}`;
  return { apiVersion, kind, namespace, name, fieldOf };
}

/** The identity of an object from a reference to it. */
export function identityOfReference(reference: unknown, path: string): Identity {
  if (!isFields(reference))
    throw badField(path, 'it must be a JSON object: kind, namespace, name and apiVersion');
  const { apiVersion, kind, namespace, name } = reference;
  return { apiVersion, kind, namespace, name, fieldOf: (part) => `${path}.${part}` };
}

/** What an event about this object says: a notice, if the object is of a kind that sutler serves.
 * @throws RequestProblem if a part of the identity is missing, or not legal in Kubernetes */
export function judgeIdentity(identity: Identity): Verdict {
  const { fieldOf } = identity;
  const textOf = (part: IdentityPart): string => requireText(identity[part], fieldOf(part));
  const kind = textOf('kind');
  const apiVersion = textOf('apiVersion');
  const resource = resourceOf(kind);
  if (resource === undefined) return 'other-kind';
  if (apiVersion !== 'v1') return 'other-group';
  const name = textOf('name');
  if (name.length > MAX_NAME || !NAME.test(name))
    throw badField(fieldOf('name'), 'it is no legal name of a Kubernetes object (a DNS subdomain)');
  if (resource === 'persistentvolumes') return { resource, namespace: '', name };
  const namespace = textOf('namespace');
  if (!NAMESPACE.test(namespace))
    throw badField(fieldOf('namespace'), 'it is no legal name of a namespace (a DNS label)');
  return { resource, namespace, name };
}

function requireText(value: unknown, field: string): string {
  if (value === undefined || value === null || value === '')
    throw badField(field, 'it is missing: an event must name its object');
  if (typeof value !== 'string') throw badField(field, 'it must be a string');
  return value;
}
