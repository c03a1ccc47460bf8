import { isOutage, KubeError } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import { referenceGrants } from '../kube/resources.ts';
import type { Resource } from '../kube/resources.ts';
import type { Answer, Rule, Step } from '../volumes/rule.ts';
import type { ProcessorPorts } from './ports.ts';

/** Runs a rule to its end, answering each of its steps at the API server.
 * @throws KubeError where the server can't be asked; what it refuses is the rule's business */
export async function runRule<T>(ports: Pick<ProcessorPorts, 'kube'>, rule: Rule<T>): Promise<T> {
  let turn = rule.next();
  while (turn.done !== true) turn = rule.next(await answer(ports, turn.value));
  return turn.value;
}

async function answer(ports: Pick<ProcessorPorts, 'kube'>, step: Step): Promise<Answer> {
  try {
    switch (step.kind) {
      case 'read': {
        const object = await ports.kube.get<KubeObject>(step.resource, step.ref);
        return object === undefined ? { kind: 'absent' } : { kind: 'found', object };
      }
      case 'list':
        return { kind: 'listed', items: await listAll(ports, step.resource, step.namespace) };
      case 'add-finalizer':
        await addFinalizer(ports, step);
        return { kind: 'finalizer-added' };
    }
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    // A kind that the server does not know: its definition is not installed (yet).
    if (error.code === 404 && step.kind !== 'add-finalizer')
      return step.kind === 'list'
        ? { kind: 'listed', items: [] }
        : { kind: 'absent', isUnknownKind: true };
    return { kind: 'refused', code: error.code, message: error.serverMessage };
  }
}

/** Both versions of a grant read alike; a server has one or the other, or both. */
const GRANT_VERSIONS = ['v1', 'v1beta1'];

async function listAll(
  ports: Pick<ProcessorPorts, 'kube'>,
  resource: Resource,
  namespace: string,
): Promise<readonly KubeObject[]> {
  if (resource.plural !== referenceGrants.plural)
    return (await ports.kube.list<KubeObject>(resource, { namespace })).items;
  for (const version of GRANT_VERSIONS) {
    try {
      return (await ports.kube.list<KubeObject>({ ...resource, version }, { namespace })).items;
    } catch (error) {
      if (!(error instanceof KubeError) || error.code !== 404) throw error;
    }
  }
  return [];
}

/** Adds a finalizer; the patch names the version that was read, so that nobody else's is lost. */
async function addFinalizer(
  ports: Pick<ProcessorPorts, 'kube'>,
  { resource, object, finalizer }: Extract<Step, { kind: 'add-finalizer' }>,
): Promise<void> {
  const { uid, resourceVersion, finalizers = [], namespace, name } = object.metadata;
  const ref = namespace === undefined ? { name } : { namespace, name };
  await ports.kube.patch(resource, ref, {
    type: 'merge',
    body: { metadata: { uid, resourceVersion, finalizers: [...finalizers, finalizer] } },
  });
}
