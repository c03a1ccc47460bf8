import { messageOf } from '#src/runtime/error-message.ts';
import { UsageError } from '#src/runtime/flags.ts';
import { realControlPlane, type RealControlPlane } from '../test/harness/real-control-plane.ts';

/** Opens the control plane of `--backend real`, with a kube-controller-manager that binds claims.
 * @throws UsageError if the environment names none */
export function openControlPlane(
  env: Readonly<Record<string, string | undefined>>,
): Promise<RealControlPlane> {
  let open: ReturnType<typeof realControlPlane>;
  try {
    open = realControlPlane(env, { binder: true });
  } catch (cause) {
    throw new UsageError(`--backend real: ${messageOf(cause)}`, { cause });
  }
  return open();
}
