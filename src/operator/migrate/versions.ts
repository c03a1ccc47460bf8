import {
  apiVersionOf,
  endpointSlices,
  referenceGrants,
  type Resource,
  snapshotContents,
  storageCapacities,
  volumeAttributesClasses,
} from '../../kube/resources.ts';
import { says, type SortedArguments } from './arguments.ts';
import { type Finding, note, wrong } from './findings.ts';

/* Whether the versions of the API server and of what runs already fit. Pure. */

/** What the API server says of itself. */
export interface ServerFacts {
  /** "v1.36.3" */
  readonly version: string;
  /** Kinds that it serves. */
  readonly kinds: ReadonlySet<Resource>;
}

/** A kind that sutler uses. */
interface Need {
  readonly kind: Resource;
  readonly by: string;
  /** How one comes by it. */
  readonly mend: string;
  /** Of Kubernetes 1, the first with it; undefined: Kubernetes does not bring it. */
  readonly minor?: number;
  /** The driver is served without it, but for this. */
  readonly onlyFor?: string;
}

/** The first with endPort in NetworkPolicies, which k8s/gateway has. */
const BASE_MINOR = 22;

/** The kinds that the driver's arguments ask for, except for those that are older. */
export function neededKinds(section: SortedArguments['section']): readonly Need[] {
  const has = (flag: string, text: string): boolean => says(section, flag, text);
  const classes = 'VolumeAttributesClass=true';
  const grants = 'CrossNamespaceVolumeDataSource=true';
  const needs: readonly (Need | false)[] = [
    { kind: endpointSlices, minor: 21, by: 'the search for gateways', mend: 'upgrade it' },
    has('enable-capacity', 'true') && {
      kind: storageCapacities,
      minor: 24,
      by: '--enable-capacity',
      mend: 'upgrade it to 1.24, or take the flag out',
    },
    !has('feature-gates', 'VolumeAttributesClass=false') && {
      kind: volumeAttributesClasses,
      minor: 34,
      by: classes,
      mend: `upgrade it to 1.34, or take ${classes} out of --feature-gates`,
      ...(has('feature-gates', classes)
        ? {}
        : { onlyFor: 'claims that name one (Kubernetes 1.34)' }),
    },
    has('feature-gates', grants) && {
      kind: referenceGrants,
      by: grants,
      mend: `install the Gateway API’s definitions, or take ${grants} out of --feature-gates`,
    },
    {
      kind: snapshotContents,
      by: 'a restore',
      mend: '',
      onlyFor: 'restores from snapshots (definitions of external-snapshotter)',
    },
  ];
  return needs.filter((need) => need !== false);
}

/** @param needs  by neededKinds */
export function judgeServer(
  { version, kinds }: ServerFacts,
  needs: readonly Need[],
): readonly Finding[] {
  const minor = Number(/^v?1\.(\d+)/.exec(version)?.[1] ?? Infinity);
  const required = needs.filter(({ onlyFor }) => onlyFor === undefined);
  const oldest = Math.max(BASE_MINOR, ...required.map((need) => need.minor ?? 0));
  const absent = needs.filter(({ kind }) => !kinds.has(kind));
  return [
    note(`the API server is ${version}; what is used of it is there since Kubernetes 1.${oldest}`),
    ...(minor >= BASE_MINOR
      ? []
      : [
          wrong(
            `the API server ${version} ignores endPort in NetworkPolicies: upgrade it to ` +
              `1.${BASE_MINOR} or later`,
          ),
        ]),
    ...absent.map(({ kind, by, mend, onlyFor }) => {
      const title = `the API server has no ${kind.plural} of ${apiVersionOf(kind)}`;
      return onlyFor === undefined
        ? wrong(`${title}, which ${by} needs: ${mend}`)
        : note(`${title}: needed only for ${onlyFor}`);
    }),
  ];
}

/** @param images  of the containers of ingest and jobs that run, by Deployment
 * @param own  the gateway's */
export function judgeImages(images: ReadonlyMap<string, string>, own: string): readonly Finding[] {
  return [...images]
    .filter(([, image]) => image !== own)
    .slice(0, 1)
    .map(([name, image]) =>
      wrong(
        `the gateway would have the image ${own}, and ${name} has ${image}: give --image=${image}, ` +
          'or update first (docs/upgrade.md)',
      ),
    );
}
