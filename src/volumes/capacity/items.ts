import type { Class } from '../../kube/objects.ts';
import type { TopologyTerm } from '../../topology/term.ts';
import { describeSegment } from './segments.ts';

/** One value of storage capacity: how much room volumes of a class have in a segment. There is one
 * CSIStorageCapacity object for each. */
export interface CapacityItem {
  readonly className: string;
  readonly segment: TopologyTerm;
}

/** For people. */
export function describeItem({ className, segment }: CapacityItem): string {
  return `class ${className} in ${describeSegment(segment)}`;
}

/** Whether capacity is published for a class: the driver's own ones, those with immediate binding
 * only if asked for, because no scheduler reads them. Upstream: external-provisioner
 * pkg/capacity/capacity.go isControlledByUs and onSCAddOrUpdate. */
export function hasCapacity(
  cls: Pick<Class, 'provisioner' | 'volumeBindingMode'>,
  driver: string,
  includesImmediate: boolean,
): boolean {
  return cls.provisioner === driver && (includesImmediate || cls.volumeBindingMode !== 'Immediate');
}

/** Every value that should be published. */
export function desiredItems(
  classes: Iterable<Pick<Class, 'metadata' | 'provisioner' | 'volumeBindingMode'>>,
  segments: readonly TopologyTerm[],
  o: { readonly driver: string; readonly includesImmediate: boolean },
): readonly CapacityItem[] {
  return [...classes]
    .filter((cls) => hasCapacity(cls, o.driver, o.includesImmediate))
    .flatMap(({ metadata: { name: className } }) =>
      segments.map((segment) => ({ className, segment })),
    );
}
