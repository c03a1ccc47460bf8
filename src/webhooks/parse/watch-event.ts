import type { Fields } from '../../runtime/json.ts';
import { badField } from '../problem.ts';
import { identityOfObject, judgeIdentity } from './object-identity.ts';
import { ignore, type Verdict } from './verdict.ts';

/** Types of events that say something about an object. */
const CHANGES = new Set(['ADDED', 'MODIFIED', 'DELETED']);
/** Types of events that say something about the watch. */
const REMARKS = new Set(['BOOKMARK', 'ERROR']);

/** Whether this is an event of a Kubernetes watch: an object with `object`, or one of its types. */
export function isWatchEvent(value: Fields): boolean {
  const { type } = value;
  if (typeof type !== 'string') return 'object' in value;
  return CHANGES.has(type) || REMARKS.has(type) || ('object' in value && !('body' in value));
}

/** Reads a plain event of a Kubernetes watch.
 * @throws RequestProblem */
export function readWatchEvent(event: Fields, path: string): Verdict {
  const { type, object } = event;
  if (typeof type !== 'string' || type === '')
    throw badField(`${path}type`, 'it must be the type of a watch event, such as ADDED');
  if (REMARKS.has(type)) return ignore('no-object');
  if (!CHANGES.has(type)) return ignore('other-type');
  return judgeIdentity(identityOfObject(object, `${path}object`));
}
