import { isOutage, KubeError } from '../kube/kube-error.ts';
import type { KubeObject } from '../kube/objects.ts';
import { referenceGrants, type Resource } from '../kube/resources.ts';
import type { Answer, Rule, Step } from '../rules/rule.ts';
import { addFinalizer } from './finalizers.ts';
import type { ProcessorPorts } from './ports.ts';

/** Runs a rule of src/volumes/ to its end: performs each step at the API server and resumes the
 * rule with the answer. A refusal is an answer too.
 * @throws KubeError if the API server is down */
export async function runRule<T>(ports: Pick<ProcessorPorts, 'kube'>, rule: Rule<T>): Promise<T> {
  let next = rule.next();
  while (next.done !== true) next = rule.next(await performStep(ports, next.value));
  return next.value;
}

async function performStep(ports: Pick<ProcessorPorts, 'kube'>, step: Step): Promise<Answer> {
  try {
    switch (step.kind) {
      case 'read': {
        const object = await ports.kube.get<KubeObject>(step.resource, step.ref);
        return object === undefined ? { kind: 'absent' } : { kind: 'found', object };
      }
      case 'list':
        return { kind: 'listed', items: await listAll(ports, step.resource, step.namespace) };
      case 'add-finalizer':
        await addFinalizer(ports, { ...step, mustBeUnchanged: true });
        return { kind: 'finalizer-added' };
    }
  } catch (error) {
    if (!(error instanceof KubeError) || isOutage(error)) throw error;
    // The server answers 404 for a kind that it does not know, since its CRD is not installed.
    if (error.code === 404 && step.kind === 'read') return { kind: 'absent', isUnknownKind: true };
    return { kind: 'refused', code: error.code, message: error.serverMessage };
  }
}

/** The versions in which a server may serve ReferenceGrants; what we read is the same in both. */
const GRANT_VERSIONS = ['v1', 'v1beta1'];

/** Lists a namespace. A kind that the server does not know has no objects. */
async function listAll(
  ports: Pick<ProcessorPorts, 'kube'>,
  resource: Resource,
  namespace: string,
): Promise<readonly KubeObject[]> {
  const isGrants = resource.plural === referenceGrants.plural;
  for (const version of isGrants ? GRANT_VERSIONS : [resource.version]) {
    try {
      return (await ports.kube.list<KubeObject>({ ...resource, version }, { namespace })).items;
    } catch (error) {
      if (!(error instanceof KubeError) || error.code !== 404) throw error;
    }
  }
  return [];
}
