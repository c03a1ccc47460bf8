import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import type { KubeClient } from '#src/kube/client.ts';
import type { KubeObject } from '#src/kube/objects.ts';
import { isAlreadyExists } from '#src/kube/kube-error.ts';
import { claims, classes, secrets, volumes, type Resource } from '#src/kube/resources.ts';
import { messageOf } from '#src/runtime/error-message.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { pods } from './resources.ts';

/** One object of the example files. */
export interface Example {
  readonly resource: Resource;
  readonly namespace: string | undefined;
  readonly name: string;
  readonly object: unknown;
}

const KINDS: ReadonlyMap<string, Resource> = new Map(
  [claims, volumes, classes, secrets, pods].map((resource) => [resource.kind, resource]),
);

/** kubectl's annotation; without it, apply warns about each object. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

/** Reads every YAML file of a folder, in the order of the file names. Classes and secrets come
 * first, because claims need them.
 * @throws UsageError that names the file and its error */
export async function readExamples(folder: string): Promise<readonly Example[]> {
  const files = await readdir(folder).catch((cause: unknown) => {
    throw new UsageError(`--examples: the folder ${folder} can't be read`, { cause });
  });
  const examples: Example[] = [];
  for (const file of files.filter((name) => /\.ya?ml$/.test(name)).sort()) {
    const path = join(folder, file);
    const text = await readFile(path, 'utf8');
    try {
      const documents = parseAllDocuments(text);
      const [error] = documents.flatMap(({ errors }) => errors);
      if (error !== undefined) throw error;
      examples.push(...documents.map((document) => readExample(document.toJS())));
    } catch (cause) {
      throw new UsageError(`--examples: ${path}: ${messageOf(cause)}`, { cause });
    }
  }
  const order = (example: Example): number =>
    // `>>> 0` turns -1 (not found) into the largest number.
    [classes, secrets].indexOf(example.resource) >>> 0;
  return examples.sort((a, b) => order(a) - order(b));
}

function readExample(document: unknown): Example {
  const { kind, metadata } = (document ?? {}) as {
    kind?: string;
    metadata?: { name?: string; namespace?: string };
  };
  const resource = KINDS.get(kind ?? '');
  if (resource === undefined)
    throw new Error(`kind ${kind ?? '(none)'} is not one of ${[...KINDS.keys()].join(', ')}`);
  if (metadata?.name === undefined) throw new Error(`a ${kind} has no metadata.name`);
  return {
    resource,
    namespace: resource.namespaced ? (metadata.namespace ?? 'default') : undefined,
    name: metadata.name,
    object: document,
  };
}

/** Creates an object as kubectl apply does, so that apply can change it later. Leaves an existing
 * object as it is. */
export async function createExample(
  client: KubeClient,
  { resource, namespace, object }: Example,
): Promise<void> {
  try {
    const { metadata, ...rest } = object as { readonly metadata: KubeObject['metadata'] };
    const applied = { [LAST_APPLIED]: JSON.stringify(object) };
    const annotations = { ...metadata.annotations, ...applied };
    await client.create(resource, namespace, { ...rest, metadata: { ...metadata, annotations } });
  } catch (error) {
    if (!isAlreadyExists(error)) throw error;
  }
}
