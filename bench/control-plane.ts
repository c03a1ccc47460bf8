import { messageOf } from '#src/runtime/error-message.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { realControlPlane, type RealControlPlane } from '../test/harness/real-control-plane.ts';

/** Opens the control plane of `--backend real`.
 * @param binder           whether a kube-controller-manager binds the claims
 * @param hasDefaultLimit  whether that one has its default limit of requests
 * @throws UsageError if the environment names none */
export function openControlPlane(
  env: Readonly<Record<string, string | undefined>>,
  binder: boolean,
  hasDefaultLimit = false,
): Promise<RealControlPlane> {
  let open: ReturnType<typeof realControlPlane>;
  try {
    open = realControlPlane(env, { binder, hasDefaultLimit });
  } catch (cause) {
    throw new UsageError(`--backend real: ${messageOf(cause)}`, { cause });
  }
  return open();
}
