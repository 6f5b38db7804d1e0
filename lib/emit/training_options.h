// What a training script gives its optimizer, schedule, loader and random numbers, as arguments of the trainer.
#pragma once
#include "emit/training_slice.h"
#include "emit/training_values.h"

namespace shardwright::emit {

/// Fills arguments, argument_lines, iterations, accumulate, order, left and notes; adds the statements it understood and the names of
/// optimizers, schedulers and scalers to `parts`.
void take_options(const TrainingScript& script, const TrainingValues& values, TrainingParts& parts, TrainingSlice& out);

}  // namespace shardwright::emit
