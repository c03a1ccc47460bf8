import { UsageError } from '../runtime/flags.ts';

/** The namespace of our CSIStorageCapacity objects.
 * @throws UsageError where the variable is not set */
export function capacityNamespace(env: Readonly<Record<string, string | undefined>>): string {
  const { NAMESPACE: namespace = '' } = env;
  if (namespace === '')
    throw new UsageError('need NAMESPACE env variable for CSIStorageCapacity objects');
  return namespace;
}
